"""Normal form (regions rewritten or not) -> executable.

Own pipeline instead of TVM's default: 16-bit arithmetic accumulates in float32, own schedules come
before the stock ones (which crash on some convolutions).

For GPUs :func:`lower_calls` stops where :mod:`convoy.schedule` takes over with streams and storage.
:func:`lower` goes on to an executable with TVM's own means: for CPUs, and for functions that the
scheduler does not take. Its CUDA graphs are TVM's: the function is cut into copies in, one
capturable middle, and copies out, and parameters that are not bound as constants are read outside
of the captured graph, so that swapping them is always seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax

from ..errors import ConvoyError
from ..graph.rewriter import Rewriter, main_function
from ..graph.state import update_in_place
from ..ops.gpu import on_gpu
from ..tir.ladder import Rescheduled, rescheduled, schedule_kernels, without_source
from .accumulate import AccumulateInFloat32
from .blame import check_lowered, unsupported_op
from .compile import compiled
from .decompose import Decompose
from .group_parameters import GroupCasts, GroupUpdates
from .legalize import legalize_ops
from .powers import Powers
from .staging import StageForCapture


def lower(
    mod: tvm.IRModule, target: str | tvm.target.Target, cuda_graph: bool = True
) -> relax.VMExecutable:
    """Compile a module for the Relax virtual machine.

    ``cuda_graph`` (CUDA targets only): everything between reading the inputs and writing the
    outputs is captured at the first call and replayed afterwards.
    """
    return lower_reporting(mod, target, cuda_graph)[0]


def lower_reporting(
    mod: tvm.IRModule,
    target: str | tvm.target.Target,
    cuda_graph: bool = True,
    external: Callable[[list[Rescheduled]], Any] | None = None,
) -> tuple[relax.VMExecutable, list[Rescheduled]]:
    """As :func:`lower`, and the kernels that could not be scheduled or compiled at first.

    ``external`` makes the module of external functions in place of the one that is attached to
    ``mod``, knowing these kernels.
    """
    target = tvm.target.Target(target) if isinstance(target, str) else target

    def build(lowered: tvm.IRModule) -> relax.VMExecutable:
        if external is not None:
            lowered = lowered.with_attr("external_mods", [external(rescheduled(lowered))])
        lowered = without_source(lowered)
        try:
            return tvm.compile(lowered, target, relax_pipeline=None)
        except tvm.error.InternalError as err:
            if "LLVM module verification failed" not in str(err):
                raise
            # LLVM's vectoriser breaks some small products, at its highest level only.
            milder = tvm.target.Target({**target.export(), "opt-level": 2})
            return tvm.compile(lowered, milder, relax_pipeline=None)

    executable, built = compiled(lower_module(mod, target, cuda_graph), target, build)
    return executable, rescheduled(built)


def lower_module(
    mod: tvm.IRModule, target: tvm.target.Target, cuda_graph: bool = True
) -> tvm.IRModule:
    """The module as it goes to code generation: scheduled kernels and virtual machine calls."""
    on_gpu = target.kind.name == "cuda"
    capture = cuda_graph and on_gpu
    with target, tvm.transform.PassContext(config={"relax.backend.use_cuda_graph": capture}):
        mod = to_kernels(mod)
        if capture:
            mod = StageForCapture()(mod)
        if on_gpu:
            mod = schedule_kernels(target)(mod)
        mod = update_in_place(tvm.transform.Sequential(call_passes())(mod))
        return tvm.transform.Sequential(memory_passes())(mod)


def lower_calls(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """The module with scheduled kernels and calls with explicit outputs, storage not planned yet:
    what :mod:`convoy.schedule` works on."""
    with target:
        mod = to_kernels(mod)
        if target.kind.name == "cuda":
            mod = schedule_kernels(target)(mod)
        return update_in_place(tvm.transform.Sequential(call_passes())(mod))


def to_kernels(mod: tvm.IRModule) -> tvm.IRModule:
    """Operators to fused kernels without schedules, for the target that is current.

    Raises UnsupportedOp for an operator that TVM cannot say as loops.
    """
    try:
        return _fused(mod)
    except ConvoyError:
        raise
    except Exception as err:  # TVM's errors have no base class but this one
        raise unsupported_op(mod, _fused, err) from err


def _fused(mod: tvm.IRModule) -> tvm.IRModule:
    mod = Decompose()(mod)
    mod = tvm.transform.Sequential(dispatch_passes())(mod)
    mod = AccumulateInFloat32()(mod)
    mod = Powers()(mod)
    mod = tvm.transform.Sequential(fuse_passes())(mod)
    check_lowered(mod)
    return mod


def dispatch_passes() -> list[tvm.transform.Pass]:
    return [relax.backend.DispatchSampling(), relax.backend.DispatchSortScan()]


def fuse_passes() -> list[tvm.transform.Pass]:
    """Operators to fused kernels without schedules."""
    return [
        *(map(module_pass, (GroupCasts, GroupUpdates)) if on_gpu() else ()),
        legalize_ops(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
        # Before staging: a reshape of an input is a view of it, not a kernel that copies it.
        relax.transform.RewriteDataflowReshape(),
    ]


def module_pass(rewriter: type[Rewriter]) -> tvm.transform.Pass:
    """One of convoy's rewriters among TVM's passes."""

    @tvm.transform.module_pass(opt_level=0, name=rewriter.__name__)
    def run(mod: tvm.IRModule, _context: object) -> tvm.IRModule:
        return rewriter()(mod)

    return run


def call_passes() -> list[tvm.transform.Pass]:
    """Dataflow to calls with explicit outputs. Stream and event calls go in behind these."""
    return [
        relax.transform.ToNonDataflow(),
        relax.transform.RemovePurityChecking(),
        relax.transform.CallTIRRewrite(),
    ]


def memory_passes() -> list[tvm.transform.Pass]:
    """Storage plan, capture and the virtual machine's own lowering."""
    return [
        relax.transform.StaticPlanBlockMemory(),
        relax.transform.RewriteCUDAGraph(),
        *finish_passes(),
    ]


def finish_passes() -> list[tvm.transform.Pass]:
    """The virtual machine's own lowering, for storage that has been planned."""
    return [
        relax.transform.LowerAllocTensor(),
        relax.transform.KillAfterLastUse(),
        relax.transform.LowerRuntimeBuiltin(),
        relax.transform.ComputePrimValue(),
        relax.transform.VMShapeLower(),
        relax.transform.AttachGlobalSymbol(),
    ]


def kernel_calls(mod: tvm.IRModule) -> list[str]:
    """Names of the kernels that one call of a fused (not yet lowered) module launches, in order;
    external functions by their symbol. For counting what a network costs in launches."""
    _, func = main_function(mod)
    names = []
    for block in func.body.blocks:
        for binding in block.bindings:
            call = binding.value
            if not isinstance(call, relax.Call) or not isinstance(call.op, tvm.ir.Op):
                continue
            if call.op.name == "relax.call_tir":
                names.append(call.args[0].name_hint)
            elif call.op.name == "relax.call_dps_packed":
                names.append(str(call.args[0].global_symbol))
    return names
