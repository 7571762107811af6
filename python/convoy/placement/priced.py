"""Add the offers of workloads and TVM's kernels to a match graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence

from ..cost import native
from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.kernel_words import NATIVE
from ..ir.measurement import Measurement
from ..ir.offer import Offer, Offers
from ..ir.workload import Workload
from ..partition.match_graph import MatchGraph, Subgraph
from .channel_gates import ChannelGates

#: Times that copies behind a kernel add to, with the copies' own.
_COPIED = {
    **dict.fromkeys(("kernel_us", "cold_us", "chained_us"), "kernel_us"),
    "enqueue_us": "enqueue_us",
    "e2e_us": "e2e_us",
}


def priced(graph: MatchGraph, offers: Mapping[Workload, Offers]) -> MatchGraph:
    """The graph with those subgraphs that have an offer, and TVM's kernels for all operations.

    A root that no candidate can run gets a kernel of TVM that is free, because there is no choice;
    an optional one, or a GEMM of a few rows, gets one for what it costs TVM; a matrix-vector
    product for each image, of which gates of channels are computed, one that applies them too. An
    operation that no subgraph covers costs what moving its bytes takes. A split subgraph is charged
    for the copies that cut its result apart, except of parts that are gathered, which their reader
    copies anyway.
    """
    found: list[Subgraph] = []
    offloaded = _with_alternatives(graph, offers)
    gathered = {op.name for op in graph.ops if op.gathered}
    gates = ChannelGates(graph)
    for root, group in graph.by_root.items():
        longest = group[0]
        for subgraph in group:
            measured = _measured(subgraph, offers)
            if measured:
                offloaded.add(root)
                found.append(_charged(subgraph, measured, gathered, graph))
            for rest in native.leftovers(subgraph, longest, graph.device):
                if len(rest.ops) > 1:  # single operations get their kernels below
                    outputs = [name for name in longest.outputs if name in rest.ops]
                    found.append(_native(rest.ops, rest.us, outputs or rest.ops[-1:], graph.device))
    for root, (longest, *_) in graph.by_root.items():
        if root in offloaded and not longest.is_alternative:
            kernel_us = native.native_us(longest, graph.device)
            if kernel_us is not None:
                found.append(_native(longest.ops, kernel_us, longest.outputs, graph.device))
            if (scaling := gates.of(longest)) is not None:
                ops, kernel_us = scaling
                found.append(_native(ops, kernel_us, ops[-1:], graph.device))
    found += _single_ops(graph, offloaded)
    return dataclasses.replace(graph, subgraphs=graph.legal(found))


def _with_alternatives(graph: MatchGraph, offers: Mapping[Workload, Offers]) -> set[str]:
    """Roots that a measured alternative to several of them computes."""
    inside = {
        op for s in graph.subgraphs if s.is_alternative and _measured(s, offers) for op in s.ops
    }
    return inside & graph.by_root.keys()


def _measured(subgraph: Subgraph, offers: Mapping[Workload, Offers]) -> Sequence[Offer]:
    found = offers.get(subgraph.require_workload())
    return linkable(subgraph, found).measured if found is not None else ()


def linkable(subgraph: Subgraph, offers: Offers) -> Offers:
    """The offers of a subgraph's workload, without times as links of a chain where it has weights
    that are no constants: only constants are loaded before the predecessor has ended."""
    if subgraph.require_workload().op == "attention" or native.has_constant_weights(subgraph):
        return offers
    plain = [
        Offer(o.candidate, dataclasses.replace(o.measurement, chained_us=None))
        for o in offers.measured
    ]
    return dataclasses.replace(offers, measured=plain)


def _charged(
    subgraph: Subgraph, measured: Sequence[Offer], gathered: Collection[str], graph: MatchGraph
) -> Subgraph:
    """The subgraph with its offers; those of a split subgraph include the copies after the
    kernel."""
    cuts = native.copies(subgraph, gathered, graph.device)
    offers = tuple(_with_copies(offer, cuts) for offer in measured)
    return dataclasses.replace(subgraph, offers=offers, launches=1 + len(cuts))


def _with_copies(offer: Offer, cuts: Sequence[Measurement]) -> Offer:
    if not cuts:
        return offer
    added = {
        name: value + sum(getattr(cut, own) for cut in cuts)
        for name, own in _COPIED.items()
        if (value := getattr(offer.measurement, name)) is not None
    }
    return Offer(offer.candidate, dataclasses.replace(offer.measurement, **added))


def _single_ops(graph: MatchGraph, offloaded: Collection[str]) -> Iterator[Subgraph]:
    """TVM's kernel for each operation that is not the root of an offloaded subgraph."""
    dtype_of: dict[str, str] = {}
    elements = {op.name: op.elements for op in graph.ops}
    for longest, *_ in graph.by_root.values():
        if not longest.is_alternative:
            dtype_of.update(dict.fromkeys(longest.ops, longest.require_workload().out_dtype))
    for op in graph.ops:
        if op.name in offloaded:
            continue
        us = 0.0
        if op.name not in graph.by_root:
            if op.name in dtype_of:
                us = native.elementwise_us(op, elements, dtype_of[op.name], graph.device)
            elif op.moved_bytes:
                us = native.moving_us(op.moved_bytes, graph.device)
        yield _native((op.name,), us, (op.name,), graph.device)


def _native(
    ops: tuple[str, ...], kernel_us: float, outputs: Sequence[str], device: Device
) -> Subgraph:
    """A kernel of TVM for these operations."""
    offer = Offer(Candidate(NATIVE, "native"), native.native_measurement(kernel_us, device))
    return Subgraph(f"native {ops[-1]}", ops, tuple(outputs), offers=(offer,))
