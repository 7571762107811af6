"""A benchmark as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path

from .. import __version__
from ..report.html import MOST_LAYERS, backend_colours, environment
from ..report.units import size
from .result import Result


def render(result: Result) -> str:
    """The page as text: bars of latency and throughput, and the heaviest layers."""
    rows = [row for row in result.rows if not row.skipped]
    return environment().get_template("bench.html.j2").render(
        version=__version__,
        result=result,
        rows=rows,
        skipped=[row for row in result.rows if row.skipped],
        slowest={
            batch: max(row.p99_ms or 0.0 for row in rows if row.batch == batch) or 1.0
            for batch in {row.batch for row in rows}
        },
        most=MOST_LAYERS,
        backend_colours=backend_colours(layer.backend for row in rows for layer in row.layers),
        size=size,
    )  # fmt: skip


def write(path: Path, result: Result) -> None:
    """Write the page to a file."""
    path.write_text(render(result), encoding="utf-8")
