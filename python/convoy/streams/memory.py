"""Plan static storage for all tensors of a function on several streams.

Two tensors may share bytes only if every op that touches the one happens before the first op that
touches the other, by stream order and events alone. That an op happens to run earlier is not
sufficient, because the timing of another run may differ.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from ..ir.schedule_parts import Buffer, MemoryPlan

ALIGNMENT = 256


def plan(buffers: Sequence[Buffer], before: Sequence[int], alone: Sequence[int]) -> MemoryPlan:
    """Offsets for ``buffers`` (those given are ignored).

    ``before[i]`` is the set (bits) of ops that happen before op i; ``alone`` the same where
    everything runs on one stream, which the plan is compared with.
    """
    placed, peak = _place(buffers, before)
    _, single = _place(buffers, alone)
    total = sum(_rounded(buffer.size) for buffer in buffers)
    return MemoryPlan(tuple(placed), peak, single, total)


def _place(buffers: Sequence[Buffer], before: Sequence[int]) -> tuple[list[Buffer], int]:
    """The better of two greedy orders: largest first, and in order of first use."""
    touched = [_bits((*b.writers, *b.readers)) for b in buffers]
    # Two buffers are apart where all ops of the one happen before all ops of the other.
    not_before = [~_common(before, (*b.writers, *b.readers)) for b in buffers]
    sizes = [_rounded(buffer.size) for buffer in buffers]
    by_size = sorted(range(len(buffers)), key=lambda i: -buffers[i].size)
    by_use = sorted(range(len(buffers)), key=lambda i: min(buffers[i].writers, default=0))
    results = []
    for order in (by_size, by_use):
        ranges: dict[int, tuple[int, int]] = {}
        for i in order:  # quadratic, with two operations for a pair
            own, others = touched[i], not_before[i]
            taken = [r for j, r in ranges.items() if own & not_before[j] and touched[j] & others]
            begin = _best_gap(sorted(taken), sizes[i])
            ranges[i] = begin, begin + sizes[i]
        results.append((max((end for _, end in ranges.values()), default=0), ranges))
    peak, ranges = min(results, key=lambda result: result[0])
    return [dataclasses.replace(b, offset=ranges[i][0]) for i, b in enumerate(buffers)], peak


def _best_gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    """Start of the smallest gap between sorted ranges that holds ``size``; the end of the last
    range if there is none."""
    best, best_size, end = None, None, 0
    for begin, stop in taken:
        gap = begin - end
        if gap >= size and (best_size is None or gap < best_size):
            best, best_size = end, gap
        end = max(end, stop)
    return end if best is None else best


def _common(before: Sequence[int], ops: Iterable[int]) -> int:
    """Return the ops that happen before each of ``ops``."""
    common = -1
    for op in ops:
        common &= before[op]
    return common


def _bits(ops: Iterable[int]) -> int:
    bits = 0
    for op in ops:
        bits |= 1 << op
    return bits


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
