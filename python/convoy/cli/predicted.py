"""The predicted schedule of a network that is placed and not compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .output import say

if TYPE_CHECKING:
    from ..ir.schedule import Schedule
    from ..placement.placement import Placement


def predicted_schedule(placement: Placement, streams: str = "auto") -> Schedule | None:
    """None where the network cannot be scheduled, with a line that says why."""
    from ..errors import NotSchedulable
    from ..pipeline import predict_schedule

    try:
        return predict_schedule(placement, streams)
    except NotSchedulable as err:
        say(f"one stream: {err}", to_stderr=True)
        return None
