"""The simulated schedule of a cover on several streams."""

from __future__ import annotations

import math

from ..cost.features import candidate_features
from ..ir.device import Device
from ..ir.objective import device_us
from ..ir.offer import Offer
from ..ir.schedule import Footprint, Op
from ..ir.workload import Workload
from ..partition.match_graph import Subgraph
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
    """The launches of a cover as the scheduler sees them, in launch order.

    Launches that take no time at all (views) are no ops; who reads them waits for what they read.
    """
    graph, machine = cover.graph, Machine.of(device)
    elements = {op.name: op.elements for op in graph.ops}
    sources: dict[str, tuple[int, ...]] = {}  # value -> ops after which it is there
    ops: list[Op] = []
    for number, (subgraph, offer) in enumerate(cover.launches):
        after = {i for value in graph.reads(subgraph) for i in sources.get(value, ())}
        done = tuple(sorted(after))
        us = device_us(offer.measurement)
        if us:
            footprint = _footprint(subgraph, offer, elements, device, machine)
            name = f"{number}.{subgraph.id}"
            ops.append(Op(name, name, "native", us, footprint, depends=done))
            done = (len(ops) - 1,)
        sources.update(dict.fromkeys(subgraph.outputs, done))
    return ops


def _footprint(
    subgraph: Subgraph, offer: Offer, elements: dict[str, int], device: Device, machine: Machine
) -> Footprint:
    """Share of the device that a launch fills: from the tiles of a kernel whose tiles are known.

    cuDNN does not tell its own. A kernel of it is taken to fill as much as the fastest of those
    whose tiles are known for the same workload: a kernel that is fast on a small problem uses small
    tiles.
    """
    from ..streams.durations import estimated_footprint

    if subgraph.workload is None:
        return _elementwise(max(elements[name] for name in subgraph.ops), machine)
    waves = _waves(subgraph.workload, offer, device)
    if waves is None:
        by_time = sorted(subgraph.offers, key=lambda other: device_us(other.measurement))
        known = (_waves(subgraph.workload, o, device) for o in by_time if o.measurement.ok)
        waves = next((found for found in known if found is not None), None)
    if waves is None:
        return estimated_footprint(subgraph.workload, machine)
    blocks = max(1, round(waves * device.sm_count))
    return Footprint(blocks, waves=round(waves, 4))


def _waves(workload: Workload, offer: Offer, device: Device) -> float | None:
    return candidate_features(workload, offer.candidate, device).get("waves")


def _elementwise(elements: int, machine: Machine) -> Footprint:
    return machine.footprint(math.ceil(elements / (_ELEMENTS * _THREADS)), _THREADS)
