"""The simulated schedule of a cover on several streams."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping

from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.objective import device_us
from ..ir.offer import Offer
from ..ir.schedule_parts import Occupancy, Op
from ..partition.match_graph import Subgraph
from ..streams import occupancy
from ..streams.planner import multi_stream, single_stream
from .cover import Cover

#: Streams of a simulated schedule: more are seldom used, and each number tried takes its time.
STREAMS = 4
# An element-wise kernel of TVM: elements for each thread, threads for each block.
_ELEMENTS, _THREADS = 8, 256


def scheduled_us(cover: Cover, streams: int = STREAMS) -> float:
    """Time of a cover in microseconds under its own objective.

    For ``graph`` the makespan of the best simulated schedule on at most ``streams`` streams; the
    other objectives launch one after another, so theirs is the sum (objective.py).
    """
    if cover.objective != "graph":
        return cover.total_us()
    ops = cover_ops(cover)
    single = single_stream(ops, ()).makespan_us
    if streams <= 1:
        return single
    return min(single, multi_stream(ops, (), streams).makespan_us)


def cover_ops(cover: Cover) -> list[Op]:
    """The launches of a cover as the scheduler sees them, in launch order. Launches that take no
    time (views) are not ops; their readers wait for the views' operands."""
    graph = cover.graph
    elements = {op.name: op.elements for op in graph.ops}
    sources: dict[str, tuple[int, ...]] = {}  # value -> ops after which it is there
    ops: list[Op] = []
    for number, (subgraph, offer) in enumerate(cover.launches):
        after = {i for value in graph.reads(subgraph) for i in sources.get(value, ())}
        done = tuple(sorted(after))
        if device_us(offer.measurement):
            op = _op(f"{number}.{subgraph.id}", subgraph, offer, elements, graph.device)
            ops.append(dataclasses.replace(op, depends=done).timed(offer.measurement))
            done = (len(ops) - 1,)
        sources.update(dict.fromkeys(subgraph.outputs, done))
    return ops


def _op(
    name: str, subgraph: Subgraph, offer: Offer, elements: Mapping[str, int], device: Device
) -> Op:
    if subgraph.workload is None:
        occupied = _elementwise(max(elements[op] for op in subgraph.ops), device)
        return Op(name, subgraph.id, "native", 0.0, occupied)
    others = fastest(subgraph.offers)
    occupied = occupancy.of_workload(subgraph.workload, device, offer.candidate, others)
    return Op(name, subgraph.id, "offloaded", 0.0, occupied, kernel=offer.candidate.key)


def fastest(offers: Iterable[Offer]) -> list[Candidate]:
    """Candidates that have a measurement, fastest first."""
    known = [offer for offer in offers if offer.measurement.ok]
    known.sort(key=lambda offer: device_us(offer.measurement))
    return [offer.candidate for offer in known]


def _elementwise(elements: int, device: Device) -> Occupancy:
    return occupancy.of_launch(device, math.ceil(elements / (_ELEMENTS * _THREADS)), _THREADS)
