"""The plan: which candidate runs which subgraph, what it costs, and what was turned down."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from ..errors import CorruptArtefact
from . import objective as objectives
from .candidate import Decline
from .device import Device
from .offer import Offer
from .workload import Workload

PLAN_FORMAT = 1


@dataclass(frozen=True)
class Choice:
    """The decision for one subgraph.

    ``runner_up`` is the cheapest candidate of another kernel, ``best_by_backend`` the cheapest
    one of each backend, ``declines`` the backends that do not take the workload and why. ``near``
    are others that are not much slower: beside other kernels they may be the better ones.
    """

    subgraph: str
    workload: Workload
    chosen: Offer
    runner_up: Offer | None = None
    best_by_backend: tuple[Offer, ...] = ()
    declines: tuple[Decline, ...] = ()
    considered: int = 1
    near: tuple[Offer, ...] = ()

    def margin(self, objective: str) -> float | None:
        """Cost of the runner-up over the chosen one; None where one of them is not measured."""
        if self.runner_up is None or not self.runner_up.measurement.ok:
            return None
        cost, _ = objectives.own_cost(self.chosen.measurement, objective)
        other, _ = objectives.own_cost(self.runner_up.measurement, objective)
        return other / cost if cost else None

    def to_json(self) -> dict[str, Any]:
        near = {"near": [scored.to_json() for scored in self.near]} if self.near else {}
        return {
            "region": self.subgraph,
            "workload": self.workload.to_json(),
            "chosen": self.chosen.to_json(),
            "runner_up": self.runner_up.to_json() if self.runner_up else None,
            "best_by_backend": [scored.to_json() for scored in self.best_by_backend],
            "declines": [decline.to_json() for decline in self.declines],
            "considered": self.considered,
            **near,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Choice:
        return cls(
            subgraph=data["region"],
            workload=Workload.from_json(data["workload"]),
            chosen=Offer.from_json(data["chosen"]),
            runner_up=Offer.from_json(data["runner_up"]) if data["runner_up"] else None,
            best_by_backend=tuple(map(Offer.from_json, data["best_by_backend"])),
            declines=tuple(Decline(**decline) for decline in data["declines"]),
            considered=data["considered"],
            near=tuple(map(Offer.from_json, data.get("near", ()))),
        )


@dataclass(frozen=True)
class Plan:
    """All choices for one network on one device under one objective.

    ``source`` says where the figures come from: "measured" on this machine, "recorded" for this
    or a like device, or "none" where no figures were there and backends' own order decided.
    ``streams`` is how many streams the kernels were chosen for: above 1 some are not the fastest
    by themselves but leave room for a neighbour on another stream.
    """

    objective: str
    device: Device
    choices: tuple[Choice, ...]
    source: str = "measured"
    environment: str = ""
    streams: int = 1

    def total_us(self, objective: str | None = None) -> float:
        """Predict the time of all subgraphs in microseconds, by default under its own objective."""
        measurements = [c.chosen.measurement for c in self.choices]
        return objectives.total(measurements, objective or self.objective)

    def functions(self) -> dict[str, Choice]:
        """Choices by the symbol of the function that runs them in a compiled module."""
        return {f"convoy_{i}_{c.workload.op}": c for i, c in enumerate(self.choices)}

    def backends(self) -> dict[str, int]:
        """How many subgraphs each backend got."""
        counts: dict[str, int] = {}
        for choice in self.choices:
            name = choice.chosen.candidate.backend
            counts[name] = counts.get(name, 0) + 1
        return dict(sorted(counts.items()))

    def differences(self, other: Plan) -> list[tuple[Choice, Choice]]:
        """Subgraphs for which another plan of the same network chose another backend."""
        theirs = {choice.subgraph: choice for choice in other.choices}
        return [
            (mine, theirs[mine.subgraph])
            for mine in self.choices
            if mine.subgraph in theirs
            and mine.chosen.candidate.backend != theirs[mine.subgraph].chosen.candidate.backend
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "format": PLAN_FORMAT,
            "objective": self.objective,
            "device": dataclasses.asdict(self.device),
            "source": self.source,
            "environment": self.environment,
            "choices": [choice.to_json() for choice in self.choices],
            **({"streams": self.streams} if self.streams > 1 else {}),
        }

    def dumps(self) -> str:
        """The plan as JSON text."""
        return json.dumps(self.to_json(), indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Plan:
        """Inverse of :meth:`to_json`; raises CorruptArtefact for anything else."""
        try:
            if data["format"] != PLAN_FORMAT:
                raise CorruptArtefact(f"a plan of format {data['format']}", f"format {PLAN_FORMAT}")
            return cls(
                objective=objectives.check(data["objective"]),
                device=Device(**data["device"]),
                choices=tuple(map(Choice.from_json, data["choices"])),
                source=data["source"],
                environment=data["environment"],
                streams=data.get("streams", 1),
            )
        except (KeyError, TypeError, AttributeError) as err:
            raise CorruptArtefact(
                f"a plan without its fields ({err!r})", "the JSON that Plan.dumps writes"
            ) from None

    @classmethod
    def loads(cls, text: str) -> Plan:
        """Inverse of :meth:`dumps`."""
        try:
            data = json.loads(text)
        except json.JSONDecodeError as err:
            raise CorruptArtefact(
                f"text that is no JSON ({err})", "a plan as Plan.dumps writes it"
            ) from None
        return cls.from_json(data)
