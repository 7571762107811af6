"""Random ops with dependences and buffers, and brute-force answers to compare with."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from convoy.ir.schedule_parts import ORIGIN, Buffer, Event, Occupancy, Op


def random_ops(seed: int, size: int) -> tuple[list[Op], list[Buffer]]:
    """A graph of forks, joins, diamonds, long skips and ops with two results, in program order.

    Each result is one buffer. Some ops write a second one, some update one of their inputs in
    place, and some results are read by nobody.
    """
    rng = random.Random(seed)
    writers: list[list[int]] = []
    readers: list[list[int]] = []
    ops = []
    for i in range(size):
        depends: set[int] = set()
        alive = range(len(writers))
        recent = [b for b in alive if b >= len(writers) - 4]
        wanted = rng.choice([0, 1, 1, 1, 2, 2, 3, 5]) if i else 0
        read = {rng.choice(recent if rng.random() < 0.7 else list(alive)) for _ in range(wanted)}
        for b in read:
            depends.update(writers[b])
        if read and rng.random() < 0.1:  # in place
            updated = rng.choice(sorted(read))
            depends.update(readers[updated])
            writers[updated].append(i)
            read.discard(updated)
        for b in read:
            readers[b].append(i)
        for _ in range(rng.choice([1, 1, 1, 2])):
            writers.append([i])
            readers.append([])
        depends.discard(i)
        waves = rng.choice([0.05, 0.2, 0.5, 1.0, 3.0])
        ops.append(
            Op(
                f"op{i}",
                f"f{i}",
                rng.choice(["native", "offloaded"]),
                rng.choice([0.5, 2.0, 5.0, 20.0]) * rng.uniform(0.8, 1.2),
                Occupancy(1, 32, 0, waves),
                depends=tuple(sorted(depends)),
            )
        )
    buffers = [
        Buffer(f"b{j}", 0, rng.choice([4, 256, 1000, 4096, 70000]), tuple(w), tuple(r))
        for j, (w, r) in enumerate(zip(writers, readers, strict=True))
    ]
    return ops, buffers


#: (ops, buffers) of up to 40 ops.
graphs = st.builds(random_ops, st.integers(0, 10**6), st.integers(1, 40))


def reachable(edges: set[tuple[int, int]], size: int) -> list[set[int]]:
    """Of each op all ops from which a path of ``edges`` leads to it, by searching backwards."""
    into: dict[int, list[int]] = {}
    for before, after in edges:
        into.setdefault(after, []).append(before)
    found = []
    for op in range(size):
        seen: set[int] = set()
        stack = list(into.get(op, ()))
        while stack:
            earlier = stack.pop()
            if earlier not in seen:
                seen.add(earlier)
                stack.extend(into.get(earlier, ()))
        found.append(seen)
    return found


def stream_edges(ops: tuple[Op, ...], events: tuple[Event, ...]) -> set[tuple[int, int]]:
    """What the order inside streams and the events say, fork and join left out."""
    edges = {(e.record, e.wait) for e in events if ORIGIN not in (e.record, e.wait)}
    for later, op in enumerate(ops):
        edges.update(
            (earlier, later) for earlier in range(later) if ops[earlier].stream == op.stream
        )
    return edges


def closure(ops: tuple[Op, ...], found: tuple[Event, ...], size: int) -> list[set[int]]:
    """What is before each op and before the join, the fork counted as op ``size``."""
    edges = stream_edges(ops, found)
    edges |= {(size, i) for i, op in enumerate(ops) if op.stream == 0}
    edges |= {(i, size + 1) for i, op in enumerate(ops) if op.stream == 0}
    edges |= {(size, size + 1)}
    for event in found:
        if ORIGIN in (event.record, event.wait):
            before = size if event.record == ORIGIN else event.record
            edges.add((before, size + 1 if event.wait == ORIGIN else event.wait))
    return reachable(edges, size + 2)


def complete(ops: tuple[Op, ...], found: tuple[Event, ...]) -> bool:
    """Whether events and streams keep all dependences, start behind the fork, and are joined."""
    size = len(ops)
    before = closure(ops, found, size)
    return (
        all(set(op.depends) <= before[i] for i, op in enumerate(ops))
        and all(size in before[i] for i in range(size))
        and before[size + 1] == set(range(size + 1))
    )
