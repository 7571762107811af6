"""The schedule of a placed network before anything is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..ir.schedule import Schedule
    from ..placement.placement import Placement


def schedule(placement: Placement, streams: int | str = "auto") -> Schedule:
    """Streams, launch order and storage as the simulator predicts them; no GPU is needed.

    ``streams`` as :func:`convoy.build` takes it. Raises InvalidOption, and NotSchedulable for a
    network with operations whose effects are unknown.
    """
    from ..partition.rewrite import rewrite
    from ..pipeline import cuda_target
    from .decide import check_streams, decide
    from .durations import figures_of
    from .link import Lowered
    from .machine import Machine

    streams = check_streams(streams)
    plan = placement.plan
    symbols = {choice.subgraph: plan.symbol(i) for i, choice in enumerate(plan.choices)}
    target = cuda_target(plan.device)
    lowered = Lowered.of(rewrite(placement.module, symbols, subgraphs=placement.subgraphs), target)
    figures = figures_of(plan, symbols)
    return decide(lowered, Machine.of(plan.device), figures, streams).schedule
