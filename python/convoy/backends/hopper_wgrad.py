"""Which schedules of the stem's wgrad a workload is offered, and what they need."""

from __future__ import annotations

from ..workload import Workload
from .base import Device
from .hopper_stem import (
    MOST_ROW_ELEMENTS,
    StemWgradKernel,
    most_parts,
    wgrad_tiles,
    window_row_elements,
)

#: Warpgroups that share a multiprocessor's rows, blocks, group, ahead; best first.
_SCHEDULES = (
    (6, 1, 4, True),
    (6, 1, 4, False),
    (3, 1, 8, True),
    (3, 1, 4, True),
    (6, 2, 3, False),
    (6, 2, 2, True),
)
#: Rows of dy that the first rows of a chunk cost beside its own.
_FIRST_ROWS = 2


def wgrad_choices(w: Workload, device: Device) -> list[tuple[StemWgradKernel, int]]:
    """Kernels with rows of a chunk, best guess first."""
    tiles = wgrad_tiles(w.r, w.s, w.c)
    kernels: dict[StemWgradKernel, None] = {}
    for warpgroups, blocks, group, ahead in _SCHEDULES:
        parts = min(max(1, warpgroups // (tiles * blocks)), most_parts(tiles, blocks))
        if parts and (group <= 4 or parts * tiles <= 4):  # else registers do not suffice
            size = (w.c, w.r, w.s, w.stride[1])
            kernels[StemWgradKernel(*size, parts, blocks, group, ahead, w.dtype)] = None
    return [(kernel, rows) for rows in _chunks(w, device) for kernel in kernels]


def wgrad_workspace(kernel: StemWgradKernel, chunk: int, w: Workload, device: Device) -> int:
    """Bytes for the sums of all blocks; ``chunk`` are the rows of one."""
    column_blocks = -(-w.k // 64)
    items = w.n * strips(w) * -(-w.p // chunk)
    blocks = min(items, max(1, device.sm_count * kernel.blocks // column_blocks))
    return blocks * w.k * w.r * w.s * w.c * 4


def strips(w: Workload) -> int:
    """Strips of an output row: of at most 128 columns and what a row in shared memory holds."""
    widest = 128
    while widest > 16 and _row_elements(w, widest) > MOST_ROW_ELEMENTS:
        widest -= 16
    return -(-w.q // widest)


def _row_elements(w: Workload, columns: int) -> int:
    return window_row_elements(columns, w.stride[1], w.padding[1], w.s, w.c)


def _chunks(w: Workload, device: Device) -> list[int]:
    """Rows of a chunk: those with which the busiest multiprocessor has least to do, then those of
    one and two chunks for each."""
    columns = w.n * strips(w) * -(-w.k // 64)

    def busiest(rows: int) -> int:
        chunks = columns * -(-w.p // rows)
        return -(-chunks // device.sm_count) * (rows + _FIRST_ROWS)

    found = {min(range(w.p, 0, -1), key=busiest): None}
    for blocks in (1, 2):
        per_column = max(1, blocks * device.sm_count // columns)
        found[-(-w.p // min(w.p, per_column))] = None
    return list(found)
