"""The schedule of a placed network before anything is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .placer import Placement
    from .schedule.plan import Schedule


def schedule(placement: Placement, streams: int | str = "auto") -> Schedule:
    """Streams, launch order and storage as the simulator predicts them; no GPU is needed.

    ``streams`` as :func:`convoy.build` takes it. Raises InvalidOption, and NotSchedulable for a
    network with operations whose effects are unknown.
    """
    from . import graph
    from .build import cuda_target
    from .schedule.decide import check_streams, decide
    from .schedule.durations import figures_of
    from .schedule.link import Lowered
    from .schedule.machine import Machine

    streams = check_streams(streams)
    plan = placement.plan
    symbols = {choice.region: plan.symbol(i) for i, choice in enumerate(plan.choices)}
    target = cuda_target(plan.device)
    lowered = Lowered.of(graph.rewrite(placement.module, symbols), target)
    figures = figures_of(plan, symbols)
    return decide(lowered, Machine.of(plan.device), figures, streams).schedule
