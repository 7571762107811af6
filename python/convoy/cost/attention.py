"""Times of attention of which nothing is recorded: from blocks, steps and bandwidth.

A block takes ``keys / tile`` steps one after the other; blocks run in waves. The constants are
those of the kernels of ``codegen/attention``, and of cuDNN's engines, on an H200.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.workload import Workload

#: Of a launch, and of a block beside its steps; of a step of 64 keys that waits for nobody.
_LAUNCH_US, _BLOCK_US, _STEP_US = 1.6, 1.2, 0.55
#: 16-bit operations of one SM in a second by mma.sync, as these kernels reach them.
_SM_FLOPS = {80: 1.5e12, 86: 0.5e12, 89: 0.7e12, 90: 2.4e12}
#: cuDNN's engines take longer to start, and so much less for what is long.
_CUDNN_LAUNCH_US, _CUDNN_SPEEDUP = 6.5, 1.5
_KEYS, _THREADS, _BLOCKS_PER_SM = 64, 128, 3
#: Share of the copy bandwidth, host time of a launch and of waiting for it, and spread.
_BANDWIDTH, _ENQUEUE_US, _WAIT_US, _SPREAD = 0.7, 2.3, 4.0, 0.25


def estimates(
    workload: Workload, candidates: Sequence[Candidate], device: Device
) -> list[Measurement | None]:
    """An estimate for each candidate, without samples."""
    return [_estimate(workload, candidate, device) for candidate in candidates]


def blocks_of(workload: Workload, candidate: Candidate) -> int:
    """Blocks of a launch."""
    rows = candidate.kernel_fields().get("rows")
    return -(-workload.h // (rows if isinstance(rows, int) else 64)) * workload.n * workload.groups


def _estimate(workload: Workload, candidate: Candidate, device: Device) -> Measurement:
    blocks = blocks_of(workload, candidate)
    waves = math.ceil(blocks / (_BLOCKS_PER_SM * device.sm_count))
    steps = math.ceil(workload.w / _KEYS)
    nearest = min(_SM_FLOPS, key=lambda arch: abs(arch - device.arch))
    busy = min(device.sm_count, blocks)
    seconds = max(
        workload.flops / (_SM_FLOPS[nearest] * busy),
        workload.bytes_moved / (_BANDWIDTH * device.memory_bandwidth),
    )
    if candidate.backend == "cudnn":
        us = _CUDNN_LAUNCH_US + seconds * 1e6 / _CUDNN_SPEEDUP
    else:
        us = _LAUNCH_US + max(waves * (_BLOCK_US + steps * _STEP_US), seconds * 1e6)
    us *= 1.0 + 0.02 * min(candidate.priority, 20)
    return Measurement(
        kernel_us=us,
        kernel_spread_us=us * _SPREAD,
        enqueue_us=_ENQUEUE_US,
        e2e_us=us + _ENQUEUE_US + _WAIT_US,
    )
