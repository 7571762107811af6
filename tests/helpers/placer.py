"""A network that is priced once and placed as often as wanted."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

import tvm

from convoy.backends.base import Backend
from convoy.cost.model import CostModel
from convoy.cost.price import price
from convoy.ir.device import Device
from convoy.ir.offer import Offers
from convoy.partition.partition import partition
from convoy.placement.placement import Placement
from convoy.placement.select import explained, select


class Placer:
    """Normal forms of one network with the offers for their subgraphs."""

    def __init__(
        self,
        modules: Sequence[tvm.IRModule],
        backends: Sequence[Backend],
        device: Device,
        costs: CostModel,
    ) -> None:
        self.graphs = [partition(module, backends, device) for module in modules]
        self.offers = price(self.graphs, backends, device, costs)
        self._source = costs.source

    def place(
        self, objective: str = "graph", search: str = "exact", backends: Sequence[str] = ()
    ) -> Placement:
        graphs, offers = self.graphs, self.offers
        if backends:  # some of the graphs' backends
            graphs = [dataclasses.replace(graph, backends=tuple(backends)) for graph in graphs]
            offers = {workload: _of(found, backends) for workload, found in offers.items()}
        return select(graphs, offers, objective, search, source=self._source)

    def explain(self, placed: Placement, search: str = "exact") -> Placement:
        return explained(placed, self.offers, search)


def _of(offers: Offers, backends: Collection[str]) -> Offers:
    """The offers of some backends."""
    return dataclasses.replace(
        offers,
        measured=[o for o in offers.measured if o.candidate.backend in backends],
        unmeasured=[c for c in offers.unmeasured if c.backend in backends],
        failed=[o for o in offers.failed if o.candidate.backend in backends],
        declines=[d for d in offers.declines if d.backend in backends],
    )
