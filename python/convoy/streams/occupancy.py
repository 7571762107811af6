"""Occupancy of a launch: of a known grid, or estimated for a workload."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from ..cost.features import candidate_features
from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.schedule_parts import Occupancy
from ..ir.workload import Workload

#: Output tile, threads and shared memory of a typical GEMM kernel, where nothing better is known.
_TILE_M, _TILE_N, _THREADS, _SHARED = 128, 128, 256, 98304
#: CUDA's own shared memory in each block.
_RESERVED = 1024


def _resident_blocks(device: Device, threads: int, shared_bytes: int) -> int:
    """Blocks of a kernel that one SM holds at a time, whatever registers its threads need."""
    fitting = min(device.blocks_per_sm, device.threads_per_sm // max(1, threads))
    if shared_bytes:
        fitting = min(fitting, device.shared_memory_per_sm // (shared_bytes + _RESERVED))
    return max(1, fitting)


def of_launch(device: Device, blocks: int, threads: int, shared_bytes: int = 0) -> Occupancy:
    """Occupancy of a launch of ``blocks`` blocks."""
    resident = _resident_blocks(device, threads, shared_bytes)
    waves = blocks / (resident * device.sm_count)
    return Occupancy(blocks, threads, shared_bytes, round(waves, 4))


def of_workload(
    workload: Workload, device: Device, candidate: Candidate, others: Iterable[Candidate] = ()
) -> Occupancy:
    """Estimate the occupancy of a candidate from its tiles.

    The tiles of cuDNN are unknown. Its kernels get the occupancy of the first of ``others``
    (fastest first) with known tiles, because a kernel that is fast on a small problem has small
    tiles. Without any, tiles of 128 x 128 are assumed for the workload's GEMM.
    """
    for known in (candidate, *others):
        waves = candidate_features(workload, known, device).get("waves")
        if waves is not None:
            return Occupancy(max(1, round(waves * device.sm_count)), waves=round(waves, 4))
    count, rows, columns, _ = workload.gemms
    blocks = math.ceil(rows / _TILE_M) * math.ceil(count * columns / _TILE_N)
    return of_launch(device, blocks, _THREADS, _SHARED)


def of_kernels(kernels: Sequence[Mapping[str, int]], device: Device) -> Occupancy | None:
    """Occupancy of the kernel that occupies most, of those that the CUDA driver reports for one
    call; ``resident`` is its number of resident blocks per SM."""
    found = [
        Occupancy(
            k["blocks"],
            k["threads"],
            k["shared_bytes"],
            round(k["blocks"] / (max(1, k["resident"]) * device.sm_count), 4),
        )
        for k in kernels
    ]
    return max(found, key=lambda occupancy: occupancy.waves, default=None)
