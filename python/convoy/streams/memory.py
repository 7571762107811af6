"""Plan static storage for all tensors of a function on several streams.

Two tensors may share bytes only if every op that touches the one happens before the first op that
touches the other, by stream order and events alone. That an op happens to run earlier is not
sufficient, because the timing of another run may differ.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from ..ir.schedule_parts import Buffer, MemoryPlan

ALIGNMENT = 256


def plan(buffers: Sequence[Buffer], before: Sequence[int], alone: Sequence[int]) -> MemoryPlan:
    """Offsets for ``buffers`` (those given are ignored).

    ``before[i]`` is the set (bits) of ops that happen before op i; ``alone`` the same where
    everything runs on one stream, which the plan is compared with.
    """
    placed, peak = _place(buffers, before)
    single = peak if before == alone else _place(buffers, alone)[1]
    total = sum(_rounded(buffer.size) for buffer in buffers)
    return MemoryPlan(tuple(placed), peak, single, total)


def _place(buffers: Sequence[Buffer], before: Sequence[int]) -> tuple[list[Buffer], int]:
    """The better of two greedy orders: largest first, and in order of first use."""
    meet = _meet(buffers, before)
    sizes = [_rounded(buffer.size) for buffer in buffers]
    by_size = sorted(range(len(buffers)), key=lambda i: -buffers[i].size)
    by_use = sorted(range(len(buffers)), key=lambda i: min(buffers[i].writers, default=0))
    results = []
    for order in (by_size, by_use):
        begins, ends = np.zeros((2, len(buffers)), np.int64)
        placed = np.zeros(len(buffers), bool)
        for i in order:
            taken = meet[i] & placed
            begins[i] = _best_gap(begins[taken], ends[taken], sizes[i])
            ends[i] = begins[i] + sizes[i]
            placed[i] = True
        results.append((int(ends.max(initial=0)), begins))
    peak, begins = min(results, key=lambda result: result[0])
    return [
        dataclasses.replace(b, offset=int(at)) for b, at in zip(buffers, begins, strict=True)
    ], peak


def _meet(buffers: Sequence[Buffer], before: Sequence[int]) -> np.ndarray:
    """A matrix of which buffers may be in use at the same time: neither all ops of the one happen
    before all ops of the other, nor the other way round."""
    ops = [(*b.writers, *b.readers) for b in buffers]
    touched = _matrix(map(_bits, ops), len(before))
    not_before = _matrix((~_common(before, own) for own in ops), len(before))
    some = touched.astype(np.float32) @ not_before.astype(np.float32).T > 0
    return some & some.T


def _matrix(sets: Iterable[int], count: int) -> np.ndarray:
    """Sets of ops as rows of ``count`` bools."""
    size = -(-count // 8)
    rows = [(bits & (1 << count) - 1).to_bytes(size, "little") for bits in sets]
    packed = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), size)
    return np.unpackbits(packed, axis=1, count=count, bitorder="little").astype(bool)


def _best_gap(begins: np.ndarray, ends: np.ndarray, size: int) -> int:
    """Start of the smallest gap between ranges that holds ``size``, the first of equal ones; the
    end of the last range if there is none."""
    order = np.lexsort((ends, begins))
    reached = np.maximum.accumulate(np.append(0, ends[order]))  # before each range, and after all
    gaps = begins[order] - reached[:-1]
    fits = np.flatnonzero(gaps >= size)
    return int(reached[fits[np.argmin(gaps[fits])]] if len(fits) else reached[-1])


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
