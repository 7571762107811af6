"""Prefer kernels that read and write tensors where they lie in wider ones.

The fastest kernel of a convolution may be one whose result is copied into a concatenation. A slower
one that writes it in place is exchanged for it if the copy takes longer than the kernel loses.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from ..backends.base import Backend
from ..backends.sliceable import operands_of, sliceable_operands, wanted
from ..cost.native import moving_us
from ..graph.expr import relax_ops
from ..graph.function import calls_of
from ..ir.objective import device_us, own_cost
from ..ir.offer import Offer
from ..ir.plan import Choice, Plan
from ..lower.channel_layout import Layout
from ..lower.in_place import uses_of
from ..lower.slice_uses import Sliceable
from ..lower.target import cuda_target
from .placement import Placement

_MOVES = relax_ops("concat split strided_slice")
#: Kernels are exchanged if this saves more microseconds in all.
LEAST_GAIN_US = 0.5


def prefer_in_place(placement: Placement, backends: Mapping[str, Backend]) -> Placement:
    """Exchange kernels of a placement, and of that for one stream, where copies are saved."""
    if not wanted():
        return placement
    single = placement.on_one_stream
    if single is not None:
        placement = dataclasses.replace(placement, on_one_stream=_exchanged(single, backends))
    return _exchanged(placement, backends)


def _exchanged(placement: Placement, backends: Mapping[str, Backend]) -> Placement:
    plan = placement.plan
    moves = bool(calls_of(placement.module, _MOVES))
    if plan.objective != "graph" or not moves or plan.untimed():
        return placement
    found = _Exchanges(placement, backends).best()
    if not found:
        return placement
    functions = plan.functions()
    others = {functions[symbol].subgraph: offer for symbol, offer in found.items()}
    choices = tuple(
        dataclasses.replace(c, chosen=others[c.subgraph], runner_up=c.chosen, linked=False)
        if c.subgraph in others
        else c
        for c in plan.choices
    )
    return dataclasses.replace(placement, plan=dataclasses.replace(plan, choices=choices))


class _Exchanges:
    """Kernels for slices that a plan's functions might have instead of their own."""

    def __init__(self, placement: Placement, backends: Mapping[str, Backend]) -> None:
        plan = placement.plan
        self._moving_us = functools.partial(moving_us, device=plan.device)
        self._uses = uses_of(placement.rewritten(), cuda_target(plan.device))
        self._own = sliceable_operands(plan, backends)
        #: For each function the kernel, what it can do, and the time that it loses.
        self._others: dict[str, tuple[Offer, frozenset[int], float]] = {}
        for symbol in self._uses.functions_beside() - self._own.keys():
            self._consider(symbol, plan.functions()[symbol], plan, backends)

    def _consider(
        self, symbol: str, choice: Choice, plan: Plan, backends: Mapping[str, Backend]
    ) -> None:
        own_us, _ = own_cost(choice.chosen.measurement, plan.objective, choice.linked)
        for offer in sorted(choice.kept(), key=lambda offer: device_us(offer.measurement)):
            backend = backends.get(offer.candidate.backend)
            places = operands_of(choice.workload, offer.candidate, plan.device, backend)
            if places:
                # Kernels that were not chosen for their time are not exchanged for it.
                lost_us = max(0.0, device_us(offer.measurement) - own_us)
                self._others[symbol] = offer, places, lost_us
                return

    def best(self) -> dict[str, Offer]:
        """The exchanges that save most: all of them, less those without which copies take no
        longer than the kernel loses. A copy is saved only if all kernels around it are
        exchanged."""
        before = self._copying_us({})
        chosen = dict.fromkeys(sorted(self._others))
        if self._copying_us({s: places for s, (_, places, _) in self._others.items()}) == before:
            return {}
        best = self._total_us(chosen)
        for _ in range(2):
            for symbol in sorted(chosen, key=lambda s: -self._others[s][2]):
                rest = {other: None for other in chosen if other != symbol}
                if (total := self._total_us(rest)) <= best:
                    best, chosen = total, rest
        if before - best <= LEAST_GAIN_US:
            return {}
        return {symbol: self._others[symbol][0] for symbol in chosen}

    def _total_us(self, exchanged: Mapping[str, None]) -> float:
        lost = sum(self._others[symbol][2] for symbol in exchanged)
        return lost + self._copying_us({s: self._others[s][1] for s in exchanged})

    def _copying_us(self, others: Sliceable) -> float:
        return Layout(self._uses, {**self._own, **others}, self._moving_us).copying_us
