"""Reasons for a placement as plain data: for each operation the selected candidate with its margin,
the rivals, the declines, and the selection under other objectives."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from ..ir.candidate import Decline
from ..ir.workload import Workload


@dataclass(frozen=True)
class Rival:
    """An offer and its cost under the objective, in microseconds.

    ``margin`` is its cost over the winner's. ``tie``: the difference is within the spread of the
    winner's measurement.
    """

    backend: str
    kernel: str
    cost_us: float
    spread_us: float
    kernel_us: float | None
    enqueue_us: float | None
    e2e_us: float | None
    margin: float | None = None
    tie: bool = False


@dataclass(frozen=True)
class Fusion:
    """A possible fusion: its cheapest candidate (empty if there is none), and the estimated cost of
    the rest on a TVM kernel."""

    epilogue: str
    candidate: str
    cost_us: float | None
    left_us: float
    chosen: bool = False


@dataclass(frozen=True)
class OpExplanation:
    """The decision for one operation.

    ``elsewhere`` names, for each other objective under which the selection differs, the candidate
    (with its epilogue if that differs). ``branches`` is the number of operations in a joint kernel,
    ``layer`` the operation's name.
    """

    subgraph: str
    workload: Workload
    winner: Rival
    losers: tuple[Rival, ...]
    failed: tuple[tuple[str, str], ...]
    declines: tuple[Decline, ...]
    fusions: tuple[Fusion, ...]
    elsewhere: tuple[tuple[str, str], ...]
    branches: int = 1
    layer: str = ""

    def to_json(self) -> dict[str, object]:
        return {
            "region": self.subgraph,
            "layer": self.layer,
            "workload": self.workload.to_json(),
            "winner": dataclasses.asdict(self.winner),
            "losers": [dataclasses.asdict(offer) for offer in self.losers],
            "failed": [{"candidate": name, "reason": why} for name, why in self.failed],
            "declines": [decline.to_json() for decline in self.declines],
            "fusions": [dataclasses.asdict(fusion) for fusion in self.fusions],
            "elsewhere": dict(self.elsewhere),
            "branches": self.branches,
        }


@dataclass(frozen=True)
class Otherwise:
    """Another objective: the number of operations with another selection, the cost of its own plan
    under it, and the cost of this plan under it."""

    objective: str
    changed: int
    own_us: float
    this_us: float

    @property
    def loss(self) -> float:
        """Share of the time that is lost by running this plan in that mode."""
        return self.this_us / self.own_us - 1.0 if self.own_us else 0.0


@dataclass(frozen=True)
class Explanation:
    """Reasons for a plan; ``total_us`` is the cost of its subgraphs under its own objective."""

    objective: str
    counted: str
    source: str
    device: str
    total_us: float
    ops: tuple[OpExplanation, ...]
    otherwise: tuple[Otherwise, ...]

    def to_json(self) -> dict[str, object]:
        return {
            "objective": self.objective,
            "counted": self.counted,
            "source": self.source,
            "device": self.device,
            "total_us": self.total_us,
            "ops": [op.to_json() for op in self.ops],
            "otherwise": [{**dataclasses.asdict(o), "loss": o.loss} for o in self.otherwise],
        }
