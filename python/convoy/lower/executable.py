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
from ..tir.cpu import schedule_for_cpu
from ..tir.rules import Rescheduled, rescheduled, schedule_kernels, without_source
from .compile import compiled
from .cuda_graph import StageForCapture
from .in_place import CopyParts
from .output_views import OutputViews
from .passes import call_passes, memory_passes, to_kernels
from .strided_kernels import external_functions, on_slices

#: LLVM's optimization level for CPU targets that name none; None leaves it to TVM, whose 3 compiles
#: three times as long for kernels that are no faster.
LLVM_LEVEL: int | None = 2
_OPTION = "opt-level"
_BROKEN = "LLVM module verification failed"


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
    return lower_together({"main": mod}, target, cuda_graph)[0]


def lower_together(
    mods: Mapping[str, tvm.IRModule],
    target: str | tvm.target.Target,
    cuda_graph: bool = True,
    external: Callable[[list[Rescheduled]], list[tvm.runtime.Module]] | None = None,
) -> tuple[relax.VMExecutable, list[Rescheduled]]:
    """Compile modules as :func:`lower` into one executable, which holds equal constants once.

    Args:
        mods: Modules by the names that their entry functions get.
        external: Makes, from the kernels that fell back to another schedule, the modules of
            external functions that replace those attached to the first module.

    Returns:
        The executable, and those kernels.
    """
    target = tvm.target.Target(target) if isinstance(target, str) else target
    lowered = lower_modules(mods, target, cuda_graph)
    target = _with_level(target)

    def build(lowered: tvm.IRModule) -> relax.VMExecutable:
        if external is not None:
            lowered = lowered.with_attr("external_mods", external(rescheduled(lowered)))
        return _verified(without_source(lowered), target)

    executable, built = compiled(lowered, target, build)
    return executable, rescheduled(built)


def _with_level(target: tvm.target.Target) -> tvm.target.Target:
    """Return a target with Convoy's level of LLVM where it is of a CPU and names none."""
    if target.kind.name != "llvm" or _OPTION in target.attrs or LLVM_LEVEL is None:
        return target
    return tvm.target.Target({**target.export(), _OPTION: LLVM_LEVEL})


def _verified(lowered: tvm.IRModule, target: tvm.target.Target) -> relax.VMExecutable:
    """Compile; where LLVM's vectorizer breaks a small matmul or pooling, at a milder level."""
    try:
        return tvm.compile(lowered, target, relax_pipeline=None)
    except tvm.error.InternalError as err:
        level = int(target.attrs.get(_OPTION, 3)) - 1
        if target.kind.name != "llvm" or level < 1 or _BROKEN not in str(err):
            raise
    return _verified(lowered, tvm.target.Target({**target.export(), _OPTION: level}))


def lower_modules(
    mods: Mapping[str, tvm.IRModule], target: tvm.target.Target, cuda_graph: bool = True
) -> tvm.IRModule:
    """Lower modules to one of scheduled kernels and virtual machine calls, ready for code
    generation.

    Their entry functions get the names given; the names of all kernels but the first module's end
    in that of their function. CUDA graphs are captured once all functions are there, so that each
    has a number of its own.
    """
    capture = cuda_graph and target.kind.name == "cuda"
    functions: dict[tvm.ir.GlobalVar, tvm.ir.BaseFunc] = {}
    attrs = None
    with target, tvm.transform.PassContext(config={"relax.backend.use_cuda_graph": capture}):
        for name, mod in mods.items():
            mod = to_kernels(mod)
            if capture:
                mod = StageForCapture()(mod)
            mod = _to_calls(mod, target, f"_{name}" if functions else "")
            mod = rename_main(mod, name)
            attrs = attrs or mod.attrs
            functions |= dict(mod.functions.items())
        joined = tvm.IRModule(functions, attrs=attrs)
        return tvm.transform.Sequential(memory_passes())(joined)


def lower_calls(mod: tvm.IRModule, target: tvm.target.Target, suffix: str = "") -> tvm.IRModule:
    """Lower a module to scheduled kernels and calls with explicit outputs, without storage plan.

    ``suffix`` is appended to the names of kernels.

    Raises:
        NotSliceable: A kernel cannot read or write a tensor where it lies in another one.
    """
    with target:
        kernels = CopyParts()(OutputViews()(to_kernels(mod)))
        return on_slices(_to_calls(kernels, target, suffix), external_functions(mod))


def _to_calls(mod: tvm.IRModule, target: tvm.target.Target, suffix: str) -> tvm.IRModule:
    """Schedule kernels, rename them, and give every call an explicit output."""
    if suffix:
        mod = rename_kernels(mod, suffix)
    if target.kind.name == "cuda":
        mod = schedule_kernels(target)(mod)
    elif target.kind.name == "llvm":
        mod = schedule_for_cpu(mod)
    return update_in_place(tvm.transform.Sequential(call_passes())(mod))
