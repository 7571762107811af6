"""The scheduled whole of a cover, simulated: what several streams would make of it."""

from __future__ import annotations

import math

from ..cost.features import candidate_features
from ..ir.device import Device
from ..ir.objective import device_us
from ..ir.offer import Offer
from ..ir.schedule import Footprint, Op
from ..partition.match_graph import Match
from ..streams.machine import Machine
from ..streams.planner import multi_stream, single_stream
from .cover import Cover

#: Streams of a simulated schedule: more are seldom used, and each number tried takes its time.
STREAMS = 4
# An element-wise kernel of TVM: elements for each thread, threads for each block.
_ELEMENTS, _THREADS = 8, 256


def scheduled_us(cover: Cover, device: Device, streams: int = STREAMS) -> float:
    """Time of a cover in microseconds under its own objective.

    For ``graph`` the makespan of the best simulated schedule on at most ``streams`` streams; the
    other objectives launch one after another, so theirs is the sum (objective.py).
    """
    if cover.objective != "graph":
        return cover.total_us()
    ops, machine = cover_ops(cover, device), Machine.of(device)
    single = single_stream(ops, (), machine).makespan_us
    if streams <= 1:
        return single
    return min(single, multi_stream(ops, (), machine, streams).makespan_us)


def cover_ops(cover: Cover, device: Device) -> list[Op]:
    """The launches of a cover as the scheduler sees them, transitions included, in launch order.

    Launches that take no time at all (views) are no ops; who reads them waits for what they read.
    """
    graph, machine = cover.graph, Machine.of(device)
    elements = {op.name: op.elements for op in graph.ops}
    moved = {(t.value, t.target): t for t in cover.transitions}
    sources: dict[str, tuple[int, ...]] = {}  # value -> ops after which it is there
    converted: dict[tuple[str, object], int] = {}
    ops: list[Op] = []

    def launched(name: str, us: float, footprint: Footprint, after: set[int]) -> int:
        ops.append(Op(name, name, "native", us, footprint, depends=tuple(sorted(after))))
        return len(ops) - 1

    for number, (match, scored) in enumerate(cover.matches):
        after: set[int] = set()
        for value in graph.reads(match):
            key = (value, match.reads_as(value))
            transition = moved.get(key)
            if transition is None:
                after.update(sources.get(value, ()))
                continue
            if key not in converted:
                footprint = _elementwise(elements.get(value, 1), machine)
                us = device_us(transition.measurement)
                before = set(sources.get(value, ()))
                converted[key] = launched(f"{value}.{key[1]}", us, footprint, before)
            after.add(converted[key])
        us = device_us(scored.measurement)
        if us == 0.0:
            done = tuple(sorted(after))
        else:
            footprint = _footprint(match, scored, elements, device, machine)
            done = (launched(f"{number}.{match.pattern}", us, footprint, after),)
        sources.update(dict.fromkeys(match.outputs, done))
    return ops


def _footprint(
    match: Match, scored: Offer, elements: dict[str, int], device: Device, machine: Machine
) -> Footprint:
    """Share of the device that a launch fills: from the tiles of a kernel whose tiles are known.

    cuDNN does not tell its own. A kernel of it is taken to fill as much as the fastest of those
    whose tiles are known for the same workload: who is fast on a small problem has cut it small.
    """
    from ..streams.durations import estimated_footprint

    if match.workload is None:
        return _elementwise(max(elements[name] for name in match.ops), machine)
    waves = _waves(match, scored, device)
    if waves is None:
        by_time = sorted(match.options, key=lambda option: device_us(option.measurement))
        known = (_waves(match, other, device) for other in by_time if other.measurement.ok)
        waves = next((found for found in known if found is not None), None)
    if waves is None:
        return estimated_footprint(match.workload, machine)
    blocks = max(1, round(waves * device.sm_count))
    return Footprint(blocks, waves=round(waves, 4))


def _waves(match: Match, scored: Offer, device: Device) -> float | None:
    assert match.workload is not None
    return candidate_features(match.workload, scored.candidate, device).get("waves")


def _elementwise(elements: int, machine: Machine) -> Footprint:
    return machine.footprint(math.ceil(elements / (_ELEMENTS * _THREADS)), _THREADS)
