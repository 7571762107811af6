"""Rules for attention on cuDNN."""

from __future__ import annotations

from ..ir.attention import Attention
from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.dtypes import HALF_DTYPES
from ..ir.roofline import library_us
from ..ir.workload import Workload

#: Below this the own kernels are as fast or faster, and engines take 0.4 s each to compile.
LEAST_ATTENTION_FLOPS = 5e8


def why_not(w: Workload, attention: Attention, device: Device) -> str:
    """Reason why cuDNN is not asked for an attention; empty if it is."""
    if device.arch < 80:
        return f"attention on compute capability {device.arch / 10}"
    if w.dtype not in HALF_DTYPES or w.out_dtype != w.dtype:
        return f"attention of {w.dtype} in, {w.out_dtype} out"
    if w.acc_dtype != "float32":
        return f"acc_dtype {w.acc_dtype}"
    if attention.bias.shape:
        return "attention with a bias"
    if attention.outer > 1:
        return "attention in groups of batches"
    a = attention
    for view, rows in ((a.q, w.h), (a.k, w.w), (a.v, w.w), (a.o, w.h)):
        steps = zip((w.n, w.groups, rows), view.strides[1:], strict=True)
        if any(size > 1 and stride == 0 for size, stride in steps):
            return "attention that reads rows repeatedly"
        if not view.is_aligned(8):
            return "rows that start between multiples of 8 elements"
    if w.flops < LEAST_ATTENTION_FLOPS:
        return f"attention of {w.flops / 1e9:.2f} GFLOP: engines are worth compiling for more"
    return ""


#: Of a launch, and the share of the roofline that the engines reach on an H200, where they have a
#: block for each SM; queries of a block.
_LAUNCH_US, _EFFICIENCY, _QUERIES = 6.5, 0.48, 128


def estimate_us(workload: Workload, candidate: Candidate, device: Device) -> float:
    """Estimate an engine, in microseconds."""
    blocks = -(-workload.h // _QUERIES) * workload.n * workload.groups
    efficiency = _EFFICIENCY * min(1.0, blocks / device.sm_count)
    return library_us(workload, candidate, device, _LAUNCH_US, efficiency)
