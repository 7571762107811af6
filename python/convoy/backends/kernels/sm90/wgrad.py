"""Schedules of the stem's wgrad for a workload, and their workspace."""

from __future__ import annotations

from ....ir.device import Device
from ....ir.workload import Workload
from .stem import MOST_ROW_ELEMENTS, StemWgradKernel, most_parts, wgrad_tiles, window_row_elements

#: Warpgroups that share an SM's rows, blocks, group, ahead; best first for windows of
#: more than 64 elements, last for others, which memory bounds.
_SCHEDULES = (
    (3, 1, 4, True),
    (6, 2, 2, True),
    (6, 2, 3, False),
)
#: Rows of dy that the first rows of a chunk cost beside its own.
_FIRST_ROWS = 2


def wgrad_choices(w: Workload, device: Device) -> list[tuple[StemWgradKernel, int]]:
    """Kernels with rows of a chunk, best guess first."""
    tiles = wgrad_tiles(w.r, w.s, w.c)
    kernels: dict[StemWgradKernel, None] = {}
    for warpgroups, blocks, group, ahead in _SCHEDULES if tiles > 1 else _SCHEDULES[::-1]:
        parts = min(max(1, warpgroups // (tiles * blocks)), most_parts(tiles, blocks))
        if parts and not (ahead and blocks == 2 and parts > 1):  # else registers do not suffice
            size = (w.c, w.r, w.s, w.stride[1])
            kernel = StemWgradKernel(*size, parts, blocks, group, ahead, dtype=w.dtype)
            kernels[kernel] = None
    chunks = _chunks(w, device)
    return [(k, rows) for rows in (chunks if tiles > 1 else chunks[::-1]) for k in kernels]


def wgrad_workspace(kernel: StemWgradKernel, chunk: int, w: Workload, device: Device) -> int:
    """Bytes for the sums of all warpgroups; ``chunk`` are rows."""
    column_blocks = -(-w.k // 64)
    items = w.n * strips(w) * -(-w.p // chunk)
    blocks = min(items, max(1, device.sm_count * kernel.blocks // column_blocks))
    return blocks * kernel.parts * column_blocks * 64 * w.r * w.s * w.c * 4


def strips(w: Workload) -> int:
    """Strips of an output row: of at most 128 columns and what a row in shared memory holds."""
    widest = 128
    while widest > 16 and _row_elements(w, widest) > MOST_ROW_ELEMENTS:
        widest -= 16
    return -(-w.q // widest)


def _row_elements(w: Workload, columns: int) -> int:
    return window_row_elements(columns, w.stride[1], w.padding[1], w.s, w.c)


def _chunks(w: Workload, device: Device) -> list[int]:
    """Rows of a chunk: those with which the busiest SM has least to do, twice as many
    (fewer blocks, whose sums are to be added), and those of two chunks for each SM."""
    columns = w.n * strips(w) * -(-w.k // 64)

    def busiest(rows: int) -> int:
        chunks = columns * -(-w.p // rows)
        return -(-chunks // device.sm_count) * (rows + _FIRST_ROWS)

    best = min(range(w.p, 0, -1), key=busiest)
    per_column = max(1, 2 * device.sm_count // columns)
    return list(dict.fromkeys((best, min(w.p, 2 * best), -(-w.p // min(w.p, per_column)))))
