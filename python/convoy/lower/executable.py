"""Compile a module in normal form for the Relax virtual machine.

For GPUs :func:`lower_calls` stops where :mod:`convoy.streams` assigns streams and storage.
:func:`lower` goes on with TVM's own means: for CPUs, and for functions that the scheduler declines.
Its CUDA graphs are TVM's: the function is split into copies of the inputs, a middle that can be
captured, and copies of the results. Parameters that are not constants are read outside of the
captured graph, so that replacing one takes effect at the next call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tvm
from tvm import relax

from ..graph.rename import rename_kernels, rename_main
from ..graph.state import update_in_place
from ..tir.rules import Rescheduled, rescheduled, schedule_kernels, without_source
from .compile import compiled
from .cuda_graph import StageForCapture
from .output_views import OutputViews
from .passes import call_passes, memory_passes, to_kernels


def lower(
    mod: tvm.IRModule, target: str | tvm.target.Target, cuda_graph: bool = True
) -> relax.VMExecutable:
    """Compile a module for the Relax virtual machine.

    Args:
        mod: A module in normal form, or one whose chosen subgraphs are calls of external functions.
        target: A CUDA or LLVM target.
        cuda_graph: For CUDA, capture everything between reading the inputs and writing the outputs
            at the first call, and replay it afterwards.

    Raises:
        UnsupportedOp: TVM cannot lower an operator to TIR, or cannot compile a kernel.
    """
    return lower_reporting(mod, target, cuda_graph)[0]


def lower_reporting(
    mod: tvm.IRModule,
    target: str | tvm.target.Target,
    cuda_graph: bool = True,
    external: Callable[[list[Rescheduled]], list[tvm.runtime.Module]] | None = None,
) -> tuple[relax.VMExecutable, list[Rescheduled]]:
    """Compile as :func:`lower`, and report the kernels that fell back to another schedule.

    Args:
        external: Makes, from those kernels, the modules of external functions that replace those
            attached to ``mod``.
    """
    target = tvm.target.Target(target) if isinstance(target, str) else target
    return _compile(lower_module(mod, target, cuda_graph), target, external)


def lower_together(
    mods: Mapping[str, tvm.IRModule], target: str | tvm.target.Target
) -> relax.VMExecutable:
    """Compile modules into one executable that holds equal constants
    once. Their entry functions get the names given; the first is the module's own."""
    target = tvm.target.Target(target) if isinstance(target, str) else target
    functions: dict[tvm.ir.GlobalVar, tvm.ir.BaseFunc] = {}
    attrs = None
    for name, mod in mods.items():
        lowered = lower_module(mod, target, False, f"_{name}" if functions else "")
        attrs = attrs or lowered.attrs
        functions |= dict(rename_main(lowered, name).functions.items())
    return _compile(tvm.IRModule(functions, attrs=attrs), target)[0]


def _compile(
    lowered: tvm.IRModule,
    target: tvm.target.Target,
    external: Callable[[list[Rescheduled]], list[tvm.runtime.Module]] | None = None,
) -> tuple[relax.VMExecutable, list[Rescheduled]]:
    def build(lowered: tvm.IRModule) -> relax.VMExecutable:
        if external is not None:
            lowered = lowered.with_attr("external_mods", external(rescheduled(lowered)))
        return _verified(without_source(lowered), target)

    executable, built = compiled(lowered, target, build)
    return executable, rescheduled(built)


def _verified(
    lowered: tvm.IRModule, target: tvm.target.Target, milder: tuple[int, ...] = (2, 1)
) -> relax.VMExecutable:
    """Compile; where LLVM's vectorizer breaks a small matmul or pooling, at a milder level."""
    try:
        return tvm.compile(lowered, target, relax_pipeline=None)
    except tvm.error.InternalError as err:
        if not milder or "LLVM module verification failed" not in str(err):
            raise
    target = tvm.target.Target({**target.export(), "opt-level": milder[0]})
    return _verified(lowered, target, milder[1:])


def lower_module(
    mod: tvm.IRModule, target: tvm.target.Target, cuda_graph: bool = True, suffix: str = ""
) -> tvm.IRModule:
    """Lower a module to scheduled kernels and virtual machine calls, ready for code generation.

    ``suffix`` is appended to the names of kernels.
    """
    cuda = target.kind.name == "cuda"
    capture = cuda_graph and cuda
    with target, tvm.transform.PassContext(config={"relax.backend.use_cuda_graph": capture}):
        mod = to_kernels(mod)
        if suffix:
            mod = rename_kernels(mod, suffix)
        if capture:
            mod = StageForCapture()(mod)
        if cuda:
            mod = schedule_kernels(target)(mod)
        mod = update_in_place(tvm.transform.Sequential(call_passes())(mod))
        return tvm.transform.Sequential(memory_passes())(mod)


def lower_calls(mod: tvm.IRModule, target: tvm.target.Target, suffix: str = "") -> tvm.IRModule:
    """Lower a module to scheduled kernels and calls with explicit outputs, without storage plan.

    ``suffix`` is appended to the names of kernels.
    """
    with target:
        mod = OutputViews()(to_kernels(mod))
        if suffix:
            mod = rename_kernels(mod, suffix)
        if target.kind.name == "cuda":
            mod = schedule_kernels(target)(mod)
        return update_in_place(tvm.transform.Sequential(call_passes())(mod))
