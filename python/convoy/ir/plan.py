"""The plan: the selected candidate of each subgraph, its cost, and the rejected alternatives."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from dataclasses import dataclass

from ..errors import CorruptArtefact, InvalidOption, InvalidWorkload
from . import fields as checks
from . import objective as objectives
from .candidate import Decline
from .device import Device
from .offer import Offer
from .workload import Workload

PLAN_FORMAT = 1


@dataclass(frozen=True)
class Choice:
    """The decision for one subgraph.

    Attributes:
        subgraph: Name of the subgraph.
        workload: Its problem.
        chosen: The selected candidate with its measurement.
        runner_up: The cheapest candidate with another kernel.
        best_by_backend: The cheapest candidate of each backend.
        declines: Backends that do not support the workload, with the reason.
        considered: Number of candidates.
        near: Candidates that are not much slower, and may be faster when run concurrently.
        layer: The model's layers that the subgraph computes; empty if unknown.
        linked: Whether it is counted as a link of a chain: its predecessor lets it start early.
    """

    subgraph: str
    workload: Workload
    chosen: Offer
    runner_up: Offer | None = None
    best_by_backend: tuple[Offer, ...] = ()
    declines: tuple[Decline, ...] = ()
    considered: int = 1
    near: tuple[Offer, ...] = ()
    layer: str = ""
    linked: bool = False

    @property
    def label(self) -> str:
        """The layer, or the workload's label if the layer is unknown."""
        return self.layer or self.workload.label

    def kept(self) -> tuple[Offer, ...]:
        """Return the measured offers that it keeps beside the chosen one, some of them twice."""
        runner_up = (self.runner_up,) if self.runner_up else ()
        offers = (*self.best_by_backend, *runner_up, *self.near)
        return tuple(offer for offer in offers if offer.measurement.ok)

    def margin(self, objective: str) -> float | None:
        """Return the runner-up's cost relative to the selected one's; None if unmeasured."""
        if self.runner_up is None or not self.runner_up.measurement.ok:
            return None
        cost, _ = objectives.own_cost(self.chosen.measurement, objective, self.linked)
        other, _ = objectives.own_cost(self.runner_up.measurement, objective, self.linked)
        return other / cost if cost else None

    def to_json(self) -> dict[str, object]:
        more: dict[str, object] = {"layer": self.layer} if self.layer else {}
        if self.near:
            more["near"] = [scored.to_json() for scored in self.near]
        if self.linked:
            more["linked"] = True
        return {
            "region": self.subgraph,
            "workload": self.workload.to_json(),
            "chosen": self.chosen.to_json(),
            "runner_up": self.runner_up.to_json() if self.runner_up else None,
            "best_by_backend": [scored.to_json() for scored in self.best_by_backend],
            "declines": [decline.to_json() for decline in self.declines],
            "considered": self.considered,
            **more,
        }

    @classmethod
    def from_json(cls, data: object) -> Choice:
        """Inverse of :meth:`to_json`; raises CorruptArtefact naming the field."""
        required = [name for name in _CHOICE if name not in ("near", "layer", "linked")]
        return checks.made(
            lambda region, **rest: cls(subgraph=region, **rest),
            data, _CHOICE, "choice", CorruptArtefact, required,
        )  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """All decisions for one network on one device under one objective.

    Attributes:
        objective: "graph", "stream" or "sync".
        device: The GPU that it is for.
        choices: The decision for each subgraph.
        source: Origin of the times: "measured" on this machine, "recorded" for this or a similar
            device, "predicted" if all are estimates, or "none" if the backends' own order decided.
        environment: Id of the environment of the measurements.
        streams: Number of streams that the kernels were selected for. Above 1, some are not the
            fastest on their own but occupy fewer SMs.
        suffix: Suffix of function names, for modules with several plans.
    """

    objective: str
    device: Device
    choices: tuple[Choice, ...]
    source: str = "measured"
    environment: str = ""
    streams: int = 1
    suffix: str = ""

    def total_us(self, objective: str | None = None) -> float:
        """Return the predicted time of all subgraphs in microseconds, by default under the plan's
        objective."""
        measurements = [c.chosen.measurement for c in self.choices]
        linked = [c.linked for c in self.choices]
        return objectives.total(measurements, objective or self.objective, linked)

    def untimed(self) -> list[Choice]:
        """Return the choices without a measurement, which :meth:`total_us` counts as zero."""
        return [choice for choice in self.choices if not choice.chosen.measurement.ok]

    def estimated(self) -> list[Choice]:
        """Return the choices whose time was estimated by a cost model."""
        return [choice for choice in self.choices if choice.chosen.measurement.estimated]

    def functions(self) -> dict[str, Choice]:
        """Return the choices by the symbol of their function in a compiled module."""
        end = self.suffix
        return {f"convoy_{i}_{c.workload.op}{end}": c for i, c in enumerate(self.choices)}

    def backends(self) -> dict[str, int]:
        """Return the number of subgraphs of each backend."""
        return dict(sorted(Counter(c.chosen.candidate.backend for c in self.choices).items()))

    def differences(self, other: Plan) -> list[tuple[Choice, Choice]]:
        """Return the subgraphs for which a plan of the same network selects another backend."""
        theirs = {choice.subgraph: choice for choice in other.choices}
        return [
            (mine, theirs[mine.subgraph])
            for mine in self.choices
            if mine.subgraph in theirs
            and mine.chosen.candidate.backend != theirs[mine.subgraph].chosen.candidate.backend
        ]

    def to_json(self) -> dict[str, object]:
        """Return the plan as data for JSON, with its format."""
        return {
            "format": PLAN_FORMAT,
            "objective": self.objective,
            "device": dataclasses.asdict(self.device),
            "source": self.source,
            "environment": self.environment,
            "choices": [choice.to_json() for choice in self.choices],
            **({"streams": self.streams} if self.streams > 1 else {}),
            **({"suffix": self.suffix} if self.suffix else {}),
        }

    def dumps(self) -> str:
        """The plan as JSON text."""
        return json.dumps(self.to_json(), indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, data: object) -> Plan:
        """Inverse of :meth:`to_json`; raises CorruptArtefact for anything else."""
        found = data.get("format") if isinstance(data, dict) else None
        if found != PLAN_FORMAT:
            raise CorruptArtefact(f"a plan of format {str(found)[:60]}", f"format {PLAN_FORMAT}")
        required = [name for name in _PLAN if name not in ("streams", "suffix")]
        try:
            return checks.made(
                lambda format, **rest: cls(**rest), data, _PLAN, "plan", CorruptArtefact, required
            )
        except (InvalidOption, InvalidWorkload) as err:  # of a choice
            raise CorruptArtefact(err.got, err.expected, err.remedy) from None

    @classmethod
    def loads(cls, text: str) -> Plan:
        """Inverse of :meth:`dumps`."""
        return cls.from_json(checks.parse_json(text, "a plan", CorruptArtefact))


def _device(data: object) -> Device:
    return checks.made(Device, data, _DEVICE, "device", CorruptArtefact)


def _decline(data: object) -> Decline:
    required = ("backend", "reason")
    return checks.made(Decline, data, _DECLINE, "decline", CorruptArtefact, required)


_BYTES = checks.integer(0, 2**63 - 1)
_REASON = checks.text(1 << 16)
_DEVICE: dict[str, checks.Check] = {
    "name": checks.text(),
    "arch": checks.integer(0, 1000),
    **dict.fromkeys(("sm_count", "threads_per_sm", "blocks_per_sm"), checks.integer(1, 1 << 20)),
    "registers_per_sm": checks.integer(1),
    **dict.fromkeys(("shared_memory_per_block", "l2_bytes", "memory_bytes"), _BYTES),
    "memory_bandwidth": checks.number(1.0, 1e18),
}
_DECLINE: dict[str, checks.Check] = {"backend": _REASON, "reason": _REASON, "remedy": _REASON}
_CHOICE: dict[str, checks.Check] = {
    "region": checks.text(1 << 16),
    "workload": Workload.from_json,
    "chosen": Offer.from_json,
    "runner_up": checks.optional(Offer.from_json),
    "best_by_backend": checks.tuple_of(Offer.from_json),
    "declines": checks.tuple_of(_decline),
    "considered": checks.integer(),
    "near": checks.tuple_of(Offer.from_json),
    "layer": _REASON,
    "linked": checks.boolean,
}
_PLAN: dict[str, checks.Check] = {
    "format": checks.integer(),
    "objective": checks.one_of(objectives.OBJECTIVES),
    "device": _device,
    "choices": checks.tuple_of(Choice.from_json),
    "source": checks.text(),
    "environment": checks.text(),
    "streams": checks.integer(1, 1 << 16),
    "suffix": checks.text(),
}
