"""A network that is priced once and placed as often as wanted."""

from __future__ import annotations

from collections.abc import Sequence

import tvm

from convoy.backends.base import Backend
from convoy.cost.model import CostModel
from convoy.cost.price import price
from convoy.ir.device import Device
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
        return select(
            self.graphs, self.offers, objective, search, backends=backends, source=self._source
        )

    def explain(self, placed: Placement, search: str = "exact") -> Placement:
        return explained(placed, self.offers, search)
