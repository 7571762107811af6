"""The kernels of a placement, and which others could take their places."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ConvoyError
from ..ir.schedule import Footprint, Op
from .durations import blended_us, estimated_footprint, measured_footprint
from .machine import Machine
from .variants import Variant, undominated

if TYPE_CHECKING:
    from ..backends.base import Backend
    from ..ir.candidate import Candidate
    from ..ir.offer import Offer
    from ..ir.plan import Choice, Plan
    from ..ir.workload import Workload

#: Variants slower than this many times the chosen kernel are not looked at.
SLOWEST = 1.6


class PlacedKernels:
    """What the scheduler may exchange in a plan: candidates that the plan itself keeps beside the
    chosen one (the runner-up, the best of each backend, those that are near).

    ``symbols`` maps regions to symbols, ``backends`` names to backends. With ``on_gpu`` footprints
    are read from the kernels, otherwise estimated from their tiles.
    """

    def __init__(
        self,
        plan: Plan,
        symbols: Mapping[str, str],
        backends: Mapping[str, Backend],
        machine: Machine,
        on_gpu: bool = False,
    ) -> None:
        self.plan, self._backends, self._machine, self._on_gpu = plan, backends, machine, on_gpu
        self._choices = {symbols[choice.subgraph]: choice for choice in plan.choices}
        self._known: dict[tuple[Workload, str], Footprint | None] = {}

    def variants(self, ops: Sequence[Op], cold: float = 0.0) -> dict[str, list[Variant]]:
        """Other kernels for offloaded ops, by symbol; ``cold`` as for durations.fill_in.

        What cannot be built or run is left out, and so is what is neither faster nor narrower than
        another one.
        """
        others = {
            op.symbol: self._others(self._choices[op.symbol])
            for op in ops
            if op.symbol in self._choices
        }
        if self._on_gpu:
            self._prepare(others)
        found: dict[str, list[Variant]] = {}
        for symbol, candidates in others.items():
            for scored in candidates:
                footprint = self._footprint(self._choices[symbol], scored)
                if footprint is not None:
                    duration = blended_us(scored.measurement, cold) or 0.0
                    variant = Variant(scored.candidate.key, duration, footprint, self.plan.source)
                    found.setdefault(symbol, []).append(variant)
        return {symbol: undominated(variants) for symbol, variants in found.items()}

    def with_variants(self, chosen: Mapping[str, Variant]) -> Plan:
        """The plan with other kernels for some symbols."""
        changed = []
        for symbol, choice in self._choices.items():
            if symbol in chosen:
                key = chosen[symbol].kernel
                scored = next(s for s in self._others(choice) if s.candidate.key == key)
                choice = dataclasses.replace(choice, chosen=scored, runner_up=choice.chosen)
            changed.append(choice)
        return dataclasses.replace(self.plan, choices=tuple(changed))

    def _others(self, choice: Choice) -> list[Offer]:
        limit = SLOWEST * (choice.chosen.measurement.kernel_us or 0.0)
        runner_up = [choice.runner_up] if choice.runner_up else []
        near = [s for s in choice.near if self._at_hand(s.candidate)]
        listed = [*choice.best_by_backend, *runner_up, *near]
        by_key = {
            scored.candidate.key: scored
            for scored in listed
            if scored.measurement.ok
            and (scored.measurement.kernel_us or 0.0) <= limit
            and scored.candidate.backend in self._backends
        }
        by_key.pop(choice.chosen.candidate.key, None)
        return list(by_key.values())

    def _at_hand(self, candidate: Candidate) -> bool:
        """Whether building takes no compiler, which is too much for what may not be taken."""
        backend = self._backends.get(candidate.backend)
        if backend is None or "runtime_compilation" in candidate.notes:
            return False
        try:
            return backend.is_ready(candidate)
        except ConvoyError:  # no compiler to ask for
            return False

    def _prepare(self, others: Mapping[str, Sequence[Offer]]) -> None:
        """Kernels that need compiling are compiled together."""
        jobs: dict[str, list[Any]] = {}
        for symbol, candidates in others.items():
            for scored in candidates:
                job = (self._choices[symbol].workload, scored.candidate)
                jobs.setdefault(scored.candidate.backend, []).append(job)
        for name, wanted in jobs.items():
            self._backends[name].prepare(wanted, self.plan.device)

    def _footprint(self, choice: Choice, scored: Offer) -> Footprint | None:
        key = choice.workload, scored.candidate.key
        if key not in self._known:
            self._known[key] = self._found_footprint(choice, scored.candidate)
        return self._known[key]

    def _found_footprint(self, choice: Choice, candidate: Candidate) -> Footprint | None:
        device = self.plan.device
        if not self._on_gpu:
            return estimated_footprint(choice.workload, self._machine, candidate, device)
        try:
            binary = self._backends[candidate.backend].build(choice.workload, candidate, device)
            return measured_footprint(choice.workload, binary, self._machine)
        except (ConvoyError, RuntimeError):
            return None
