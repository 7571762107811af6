"""Schedules and timelines for reports: predicted, and measured if there is a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .output import say

if TYPE_CHECKING:
    from ..ir.schedule import Schedule
    from ..placement.placement import Placement
    from ..report.timeline import Timeline
    from ..runtime.compiled import CompiledModule


def predicted_schedule(placement: Placement, streams: str = "auto") -> Schedule | None:
    """None if the network cannot be scheduled, with a line that says why."""
    from ..errors import NotSchedulable
    from ..pipeline import predict_schedule

    try:
        return predict_schedule(placement, streams)
    except NotSchedulable as err:
        say(f"one stream: {err}", to_stderr=True)
        return None


def measured_timeline(compiled: CompiledModule) -> Timeline | None:
    """Measure a module; None if it cannot run here, with a line that gives the reason."""
    from ..errors import NoGpu, WrongDevice
    from ..progress import stages
    from ..report.measured import measure

    progress = stages(None)
    try:
        with progress.stage("measure"):
            return measure(compiled, progress=progress) if compiled.schedule else None
    except (NoGpu, WrongDevice) as err:
        say(f"not measured: {err}", to_stderr=True)
        return None
