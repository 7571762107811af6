"""Which of a root's nested subgraphs to take: how much to fuse, by cost.

A longer subgraph saves the kernel that would do the rest, but fewer candidates can run it. Each
alternative costs its cheapest candidate plus an estimate of what it leaves to TVM's own kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ..ir.device import Device
from ..ir.workload import DTYPE_BYTES, Workload

# A kernel that does nothing still takes this long inside a CUDA graph, in microseconds.
SMALLEST_KERNEL_US = 1.5
# Share of the copy bandwidth that an element-wise kernel reaches.
ELEMENTWISE_EFFICIENCY = 0.85


class SubgraphLike(Protocol):
    """What is needed of a subgraph here (see graph.subgraphs)."""

    @property
    def id(self) -> str: ...
    @property
    def root(self) -> str: ...
    @property
    def covered(self) -> tuple[str, ...]: ...
    @property
    def workload(self) -> Workload: ...
    @property
    def optional(self) -> bool: ...


def plausible(
    subgraphs: Sequence[SubgraphLike], accepts: Sequence[Callable[[Workload], bool]]
) -> list[list[SubgraphLike]]:
    """For each root, in program order, what is worth considering, longest first: the longest
    subgraph that each backend accepts and, where another root could take one of its operations
    first (a sum of two convolutions), the longest that is free of such. Roots that nobody accepts
    are left out. ``subgraphs`` holds those of a root longest first.
    """
    by_root: dict[str, list[SubgraphLike]] = {}
    roots_of: dict[str, set[str]] = {}
    for subgraph in subgraphs:
        by_root.setdefault(subgraph.root, []).append(subgraph)
        for op in subgraph.covered:
            roots_of.setdefault(op, set()).add(subgraph.root)
    result = []
    for group in by_root.values():
        wanted: set[int] = set()
        for accept in accepts:
            accepted = [i for i, subgraph in enumerate(group) if accept(subgraph.workload)]
            alone = [i for i in accepted if all(len(roots_of[op]) == 1 for op in group[i].covered)]
            wanted.update(accepted[:1] + alone[:1])
        if wanted:
            result.append([group[i] for i in sorted(wanted)])
    return result


def native_us(workload: Workload, device: Device) -> float:
    """Estimated time of TVM's own kernel for an optional subgraph: bytes over bandwidth."""
    seconds = workload.bytes_moved / (ELEMENTWISE_EFFICIENCY * device.memory_bandwidth)
    return SMALLEST_KERNEL_US + seconds * 1e6


def leftover_us(subgraph: SubgraphLike, longest: SubgraphLike, device: Device) -> float:
    """Estimate the time of one element-wise kernel for what ``longest`` does beyond ``subgraph``.

    Bytes over bandwidth: it reads the subgraph's result, a residual that is not yet added, and
    writes each result that is not yet written.
    """
    if set(longest.covered) <= set(subgraph.covered):
        return 0.0
    mine, whole = subgraph.workload.epilogue, longest.workload.epilogue
    w = subgraph.workload
    tensor = w.n * w.p * w.q * w.k * DTYPE_BYTES[w.out_dtype]
    passes = 2 + (whole.residual and not mine.residual)
    base = (whole.residual, whole.bias, whole.activation)
    if whole.affine_relu and whole.writes_y and base != (mine.residual, mine.bias, mine.activation):
        passes += 1  # the plain result is written as well
    seconds = passes * tensor / (ELEMENTWISE_EFFICIENCY * device.memory_bandwidth)
    return SMALLEST_KERNEL_US + seconds * 1e6


def choose(
    groups: Sequence[Sequence[SubgraphLike]],
    cost: Callable[[Workload], float | None],
    device: Device,
) -> list[SubgraphLike]:
    """One subgraph for each root, the cheapest that shares no operation with those before it.

    ``cost`` gives the cheapest candidate's time of a workload in microseconds, infinity where
    nothing can run it, None where nothing is known; without figures the longest subgraph is taken.
    An optional root is left out unless figures say that it pays.
    """
    taken: set[str] = set()
    result = []
    for group in groups:
        free = [subgraph for subgraph in group if taken.isdisjoint(subgraph.covered)]
        if not free:
            continue
        costs = [(cost(subgraph.workload), subgraph) for subgraph in free]
        known = [(c + leftover_us(r, free[0], device), r) for c, r in costs if c is not None]
        finite = [(c, r) for c, r in known if c != float("inf")]
        if free[0].optional:
            native = native_us(free[0].workload, device)
            finite = [(c, r) for c, r in finite if c < native]
            if not finite:
                continue
        if finite:
            best = min(finite, key=lambda item: (item[0], -len(item[1].covered)))[1]
        else:
            best = free[0]
        taken.update(best.covered)
        result.append(best)
    return result
