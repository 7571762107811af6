"""Durations and sizes for people, and round values of them along an axis."""

from __future__ import annotations

import math


def duration(us: float) -> str:
    """Format microseconds for people."""
    if us >= 10000:
        return f"{us / 1000:.1f} ms"
    return f"{us:.0f} us" if us >= 100 or us == int(us) else f"{us:.1f} us"


def size(count: int) -> str:
    """Format bytes for people."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.2f} GiB"


def steps(end: float, count: int) -> list[float]:
    """Round numbers from 0 up to ``end``, about ``count`` of them."""
    if end <= 0:
        return [0.0]
    raw = end / count
    power = 10.0 ** int(f"{raw:e}".split("e")[1])
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw)
    return [i * step for i in range(int(end / step + 1e-9) + 1)]


def byte_steps(most: int) -> list[float]:
    """Round numbers of bytes in units of 1024."""
    unit = 1024 ** min(3, int(math.log(most, 1024)))
    return [step * unit for step in steps(most / unit, 4)]
