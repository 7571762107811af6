"""Timelines measured on the GPU that is present."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import NoGpu, WrongDevice
from .output import progress, say

if TYPE_CHECKING:
    from ..report.timeline import Timeline
    from ..runtime.compiled import CompiledModule


def has_gpu() -> bool:
    """Return whether a module can be run on a GPU here."""
    from ..runtime import current_device

    try:
        current_device()
    except NoGpu:
        return False
    return True


def measured_timeline(compiled: CompiledModule) -> Timeline | None:
    """Measure a module; None where it cannot run here, with a line that gives the reason."""
    from ..report.measured import measure

    try:
        return measure(compiled, progress=progress) if compiled.schedule else None
    except (NoGpu, WrongDevice) as err:
        say(f"not measured: {err}", to_stderr=True)
        return None
