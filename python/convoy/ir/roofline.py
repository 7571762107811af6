"""The minimum time of a workload, and a library's overhead above it."""

from __future__ import annotations

from .candidate import Candidate
from .device import Device
from .workload import Workload

#: Floating point operations of one SM in a second by architecture, in 16 bits on tensor cores.
_SM_FLOPS = {80: 2.9e12, 86: 0.9e12, 89: 1.3e12, 90: 7.5e12, 100: 15e12, 120: 2.5e12}
#: Share of these that float32 has: with tf32, and without tensor cores; and int8.
_TF32, _FLOAT32, _INT8 = 0.5, 0.07, 2.0


def roofline_us(workload: Workload, device: Device) -> float:
    """Microseconds that arithmetic or memory bandwidth takes, whichever is longer, on the whole
    device with each operand read once and each result written once."""
    nearest = min(_SM_FLOPS, key=lambda arch: abs(arch - device.arch))
    flops = _SM_FLOPS[nearest] * device.sm_count
    if workload.dtype == "float32":
        flops *= _TF32 if workload.math == "tf32" else _FLOAT32
    if workload.is_integer:
        flops *= _INT8
    return 1e6 * max(workload.flops / flops, workload.bytes_moved / device.memory_bandwidth)


def library_us(
    workload: Workload, candidate: Candidate, device: Device, launch_us: float, efficiency: float
) -> float:
    """Estimate a candidate of a library that orders them itself: its first choice reaches
    ``efficiency`` of the roofline, each later one is taken for 2% slower, up to the 20th."""
    first = launch_us + roofline_us(workload, device) / efficiency
    return first * (1.0 + 0.02 * min(candidate.priority, 20))
