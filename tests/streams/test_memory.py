"""The memory plan against a brute-force happens-before check, and by executing schedules on an
arena of bytes in every kind of legal order."""

from __future__ import annotations

import random

from graphs import graphs, random_ops, reachable, stream_edges
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy.ir.schedule_parts import Buffer
from convoy.streams import memory
from convoy.streams.planner import multi_stream, single_stream


def overlap(a: Buffer, b: Buffer) -> bool:
    return a.offset < b.offset + b.size and b.offset < a.offset + a.size


@given(graphs, st.integers(1, 6))
@settings(max_examples=80, deadline=None)
def test_sharing_only_where_one_is_over_before_the_other(case, streams: int) -> None:
    ops, buffers = case
    schedule = multi_stream(ops, buffers, streams)
    before = reachable(stream_edges(schedule.ops, schedule.events), len(ops))
    placed = schedule.memory.buffers
    assert [b.name for b in placed] == [b.name for b in buffers]
    for i, a in enumerate(placed):
        assert a.offset % memory.ALIGNMENT == 0
        assert a.offset + a.size <= schedule.memory.peak_bytes
        for b in placed[i + 1 :]:
            if overlap(a, b):
                touch_a, touch_b = {*a.writers, *a.readers}, {*b.writers, *b.readers}
                assert all(x in before[y] for x in touch_a for y in touch_b) or all(
                    y in before[x] for x in touch_a for y in touch_b
                )


@given(st.integers(0, 10**6), st.integers(2, 25), st.integers(1, 5))
@settings(max_examples=80, deadline=None)
def test_every_legal_order_reads_what_was_written(seed: int, size: int, streams: int) -> None:
    """Ops are executed in random orders that streams and events allow, each reading all bytes of
    its inputs when it starts and writing its outputs when it ends, others in between."""
    ops, buffers = random_ops(seed, size)
    schedule = multi_stream(ops, buffers, streams)
    rng = random.Random(seed)
    before = reachable(stream_edges(schedule.ops, schedule.events), size)
    for _ in range(3):
        arena = [(-1, -1)] * (schedule.memory.peak_bytes // 4 + 1)  # (buffer, version) of a word
        version = dict.fromkeys(range(len(buffers)), 0)
        begun: set[int] = set()
        over: set[int] = set()
        while len(over) < size:
            startable = [i for i in range(size) if i not in begun and before[i] <= over]
            running = sorted(begun - over)
            if startable and (not running or rng.random() < 0.6):
                op = rng.choice(startable)
                begun.add(op)
                for j, buffer in enumerate(schedule.memory.buffers):
                    words = range(buffer.offset // 4, (buffer.offset + buffer.size) // 4)
                    if op in buffer.readers or (op in buffer.writers and op != buffer.writers[0]):
                        assert all(arena[w] == (j, version[j]) for w in words), (op, buffer)
                    if op in buffer.writers:  # partly written from its start to its end
                        version[j] += 1
                        for w in words:
                            arena[w] = (j, version[j])
            else:
                op = rng.choice(running)
                over.add(op)
                for j, buffer in enumerate(schedule.memory.buffers):
                    if op in (*buffer.readers, *buffer.writers):
                        words = range(buffer.offset // 4, (buffer.offset + buffer.size) // 4)
                        assert all(arena[w] == (j, version[j]) for w in words), (op, buffer)


@given(graphs)
@settings(max_examples=30, deadline=None)
def test_sizes_are_in_order(case) -> None:
    ops, buffers = case
    one = single_stream(ops, buffers).memory
    assert one.peak_bytes == one.single_stream_bytes
    many = multi_stream(ops, buffers, 4).memory
    for plan in (one, many):
        assert max(b.size for b in plan.buffers) <= plan.peak_bytes <= plan.total_bytes
    most = [0] * len(ops)  # bytes alive while each op runs on one stream
    for b in one.buffers:
        touched = (*b.writers, *b.readers)
        for op in range(min(touched), max(touched) + 1):
            most[op] += -(-b.size // memory.ALIGNMENT) * memory.ALIGNMENT
    assert one.peak_bytes >= max(most)


def test_chain_takes_two_buffers_on_one_stream() -> None:
    buffers = [Buffer(f"b{i}", 0, 1000, (i,), (i + 1,)) for i in range(9)]
    before = [(1 << i) - 1 for i in range(10)]
    assert memory.plan(buffers, before, before).peak_bytes == 2 * 1024


def test_concurrent_branches_share_nothing() -> None:
    """Two buffers that never live at the same time by the clock, on streams without events."""
    buffers = [Buffer("a", 0, 100, (0,), (1,)), Buffer("b", 0, 100, (2,), (3,))]
    apart = memory.plan(buffers, [0, 1, 0, 4], [0, 1, 3, 7])
    assert apart.peak_bytes == 512
    assert apart.single_stream_bytes == 256
