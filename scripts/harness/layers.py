"""Measure layers: every candidate of Convoy's backends, and PyTorch, layer after layer."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from convoy.backends.base import Backend
from convoy.errors import ConvoyError
from convoy.ir.candidate import Candidate, Decline
from convoy.ir.device import Device
from convoy.ir.measurement import Measurement
from convoy.ir.objective import own_cost
from convoy.ir.workload import Workload
from convoy.measure import protocol

from .layer_lists import Layer

#: Systems that are compared. CONVOY chooses among all candidates of its backends; FIRST is the
#: first plan of cuDNN's own heuristics.
SYSTEMS = ("PyTorch", "cuDNN first", "cuDNN best", "CUTLASS", "hopper", "Convoy")
TORCH, FIRST, CUDNN, CUTLASS, HOPPER, CONVOY = SYSTEMS
_OF_BACKEND = {"cudnn": CUDNN, "cutlass": CUTLASS, "hopper": HOPPER}

#: Metrics that a choice can be made by: objectives of placement (convoy.ir.objective).
KERNEL_ONLY, END_TO_END = "graph", "sync"
METRICS = {KERNEL_ONLY: "kernel-only", END_TO_END: "end-to-end"}


@dataclass(frozen=True)
class Times:
    """A candidate's times in microseconds, and its error against float64."""

    name: str
    kernel_us: float
    e2e_us: float
    error: float | None = None

    def us(self, metric: str) -> float:
        return self.kernel_us if metric == KERNEL_ONLY else self.e2e_us


@dataclass
class Result:
    """A layer's times by system and by the metric that chose the candidate."""

    layer: Layer
    best: dict[str, dict[str, Times]] = field(default_factory=dict)
    measured: int = 0
    worst_error: float = 0.0
    failures: list[str] = field(default_factory=list)

    def us(self, system: str, metric: str = KERNEL_ONLY) -> float:
        """Time of a system; NaN where it has none."""
        times = self.best.get(system, {}).get(metric)
        return times.us(metric) if times else math.nan

    def choice(self, metric: str = KERNEL_ONLY) -> str:
        """``backend:kernel`` that convoy chooses by a metric; empty if there is none."""
        times = self.best.get(CONVOY, {}).get(metric)
        return times.name if times else ""

    def to_json(self) -> dict[str, Any]:
        data = dataclasses.asdict(self)
        return {**data, "layer": self.layer.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Result:
        best = {
            system: {metric: Times(**times) for metric, times in by_metric.items()}
            for system, by_metric in data["best"].items()
        }
        return cls(**{**data, "layer": Layer.from_json(data["layer"]), "best": best})


class Peer(Protocol):
    """A peer that times a workload (torch_layers.Torch)."""

    def time(self, workload: dict[str, Any]) -> dict[str, Any]: ...


class Bench:
    """Measures layers: up to ``most`` candidates of a backend, ``budget_ms`` of samples each;
    with ``ready`` those whose kernels are compiled already."""

    def __init__(
        self,
        backends: Sequence[Backend],
        device: Device,
        *,
        most: int,
        budget_ms: float,
        peer: Peer | None = None,
        ready: bool = False,
    ) -> None:
        self._backends, self._device, self._most = backends, device, most
        self._budget_ms, self._peer, self._ready = budget_ms, peer, ready
        self._candidates: dict[Workload, list[tuple[Backend, Candidate]]] = {}
        self._results: dict[Workload, Result] = {}

    def compile(self, layers: Sequence[Layer]) -> None:
        """Builds the kernels of all layers, many at once."""
        for backend in self._backends:
            jobs = []
            for workload in dict.fromkeys(layer.workload for layer in layers):
                found = backend.propose(workload, self._device)
                chosen = [] if isinstance(found, Decline) else list(found)[: self._most]
                if self._ready:
                    chosen = [candidate for candidate in chosen if backend.is_ready(candidate)]
                jobs += [(workload, candidate) for candidate in chosen]
                mine = self._candidates.setdefault(workload, [])
                mine += [(backend, candidate) for candidate in chosen]
            backend.prepare(jobs, self._device)

    def run(self, layers: Sequence[Layer]) -> Iterator[Result]:
        """A result for each layer, as they come; layers with the same workload share one."""
        for layer in layers:
            if (known := self._results.get(layer.workload)) is not None:
                yield dataclasses.replace(known, layer=layer)
                continue
            result = self._results[layer.workload] = Result(layer)
            self._time_candidates(layer.workload, result)
            protocol.release()
            if self._peer is not None:
                self._time_peer(layer.workload, result)
            yield result

    def _time_candidates(self, workload: Workload, result: Result) -> None:
        fastest: float | None = None
        for backend, candidate in self._candidates.get(workload, []):
            try:
                binary = backend.build(workload, candidate, self._device)
            except ConvoyError as error:
                result.failures.append(f"{candidate.key}: {error}"[:300])
                continue
            found = protocol.measure(
                workload, candidate, binary, self._device, best_us=fastest,
                budget_ms=self._budget_ms, cold=False,
            )  # fmt: skip
            if not found.ok:
                result.failures.append(f"{candidate.key}: {found.failure}"[:300])
                continue
            result.measured += 1
            result.worst_error = max(result.worst_error, found.error or 0.0)
            fastest = min(fastest or math.inf, found.kernel_us or math.inf)
            self._note(result, candidate, found)

    def _note(self, result: Result, candidate: Candidate, found: Measurement) -> None:
        """Keeps the candidate where it is the best of its backend or of all by a metric."""
        costs = {metric: own_cost(found, metric)[0] for metric in METRICS}
        times = Times(candidate.key, costs[KERNEL_ONLY], costs[END_TO_END], found.error)
        systems = [CONVOY]
        if candidate.backend in _OF_BACKEND:
            systems.append(_OF_BACKEND[candidate.backend])
        for system in systems:
            best = result.best.setdefault(system, {})
            for metric in METRICS:
                if metric not in best or times.us(metric) < best[metric].us(metric):
                    best[metric] = times
        if candidate.backend == "cudnn" and FIRST not in result.best:
            result.best[FIRST] = dict.fromkeys(METRICS, times)

    def _time_peer(self, workload: Workload, result: Result) -> None:
        assert self._peer is not None
        answer = self._peer.time(workload.to_json())
        if failure := answer.get("failure"):
            result.failures.append(f"{TORCH}: {failure}")
        else:
            times = Times("eager", answer["kernel_us"], answer["e2e_us"])
            result.best[TORCH] = dict.fromkeys(METRICS, times)
