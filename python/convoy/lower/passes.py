"""The passes from normal form to the Relax virtual machine, in order.

to_kernels      operators -> fused TIR kernels without schedules
(tir.rules)     kernels -> kernels bound to GPU threads
call_passes     dataflow -> calls with explicit outputs; streams and events are inserted here
memory_passes   storage plan, CUDA graph capture, calls of the virtual machine
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax

from ..errors import ConvoyError
from ..graph.rewriter import Rewriter
from ..graph.target import on_gpu
from ..tir.dead_blocks import without_dead_blocks
from ..tir.unit_reductions import without_unit_reductions
from .accumulate import AccumulateInFloat32
from .channel_gates import FuseChannelGates
from .decompose import Decompose
from .diagnose import check_lowered, unsupported_op
from .empty_constants import EmptyConstants
from .group_norms import GroupNorms
from .interiors import ReadInteriors
from .legalize import legalize_ops
from .legalize_nan import keeps_nan
from .long_norms import LongNorms
from .max_pools import KeepTaps
from .movements import fuse_movements
from .multi_tensor import GroupCasts, GroupSquares, GroupUpdates
from .order_nan import OrderNan
from .plain_reshapes import PlainReshapes
from .power import RewritePower
from .recurrent import RecurrentKernels
from .row_norms import RowNorms
from .scalars import Scalars
from .scatters import ScatterInParallel
from .second_results import FuseSecondResults
from .slices import fuse_slices
from .softmax_gradients import SoftmaxGradients
from .split_reductions import SplitReductions
from .spread import KeepSpreadApart
from .tails import fuse_tails
from .topk import SelectTopK

Pass = Callable[[tvm.IRModule], tvm.IRModule]


def to_kernels(mod: tvm.IRModule) -> tvm.IRModule:
    """Lower operators to fused kernels without schedules, for the current target.

    Raises:
        UnsupportedOp: An operator that TVM cannot lower to TIR.
    """
    try:
        return _to_kernels(mod)
    except ConvoyError:
        raise
    except Exception as err:  # TVM's errors have no other base class
        raise unsupported_op(mod, _to_kernels, err) from err


def _to_kernels(mod: tvm.IRModule) -> tvm.IRModule:
    for step in kernel_passes(keeps_nan(mod)):
        mod = step(mod)
    check_lowered(mod)
    return mod


def kernel_passes(keep_nan: bool = True) -> list[Pass]:
    """Operators to fused kernels without schedules, for the current target; ``keep_nan`` as in
    :func:`legalize_ops`."""
    return [
        *([RecurrentKernels(), ScatterInParallel()] if on_gpu() else []),
        Decompose(),  # operators that TVM cannot compile, into others
        *([OrderNan()] if keep_nan else []),
        *([SelectTopK()] if on_gpu() else []),
        relax.backend.DispatchSampling(),
        relax.backend.DispatchSortScan(),
        PlainReshapes(),
        *([LongNorms(), RowNorms(), SoftmaxGradients()] if on_gpu() else []),
        *([GroupNorms(), ReadInteriors()] if on_gpu() else []),
        AccumulateInFloat32(),  # 16-bit arithmetic
        *([SplitReductions(), Scalars()] if on_gpu() else []),
        RewritePower(),  # pow() of negative bases on CUDA
        tvm.transform.Sequential(fuse_passes(keep_nan)),
    ]


def fuse_passes(keep_nan: bool = True) -> list[tvm.transform.Pass]:
    """Legalize operators and fuse their kernels, for the current target."""
    return [
        *(map(module_pass, (GroupCasts, GroupSquares, GroupUpdates, KeepTaps)) if on_gpu() else ()),
        legalize_ops(keep_nan),
        *((without_unit_reductions,) if on_gpu() else ()),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        module_pass(EmptyConstants),
        *(map(module_pass, (KeepSpreadApart,)) if on_gpu() else ()),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
        *((without_dead_blocks, fuse_movements, fuse_tails, fuse_slices) if on_gpu() else ()),
        *(map(module_pass, (FuseChannelGates, FuseSecondResults)) if on_gpu() else ()),
        # Before staging: a reshape of an input is a view of it, not a kernel that copies it.
        relax.transform.RewriteDataflowReshape(),
    ]


def module_pass(rewriter: type[Rewriter]) -> tvm.transform.Pass:
    """Make a TVM pass of a rewriter."""

    @tvm.transform.module_pass(opt_level=0, name=rewriter.__name__)
    def run(mod: tvm.IRModule, _context: object) -> tvm.IRModule:
        return rewriter()(mod)

    return run


def call_passes() -> list[tvm.transform.Pass]:
    """Dataflow to calls with explicit outputs; stream and event calls are inserted after these."""
    return [
        relax.transform.ToNonDataflow(),
        relax.transform.RemovePurityChecking(),
        relax.transform.CallTIRRewrite(),
    ]


def memory_passes() -> list[tvm.transform.Pass]:
    """Plan storage, capture CUDA graphs and lower to the virtual machine."""
    return [
        relax.transform.StaticPlanBlockMemory(),
        relax.transform.RewriteCUDAGraph(),
        *finish_passes(),
    ]


def finish_passes() -> list[tvm.transform.Pass]:
    """Lower a function whose storage is planned to the virtual machine."""
    return [
        relax.transform.LowerAllocTensor(),
        relax.transform.KillAfterLastUse(),
        relax.transform.LowerRuntimeBuiltin(),
        relax.transform.ComputePrimValue(),
        relax.transform.VMShapeLower(),
        relax.transform.AttachGlobalSymbol(),
    ]
