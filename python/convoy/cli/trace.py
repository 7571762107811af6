"""The command ``convoy trace``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .options import (
    Backends,
    Batch,
    Constant,
    End,
    Html,
    Objective,
    Params,
    PlacementOptions,
    Precision,
    Records,
    Search,
    Shape,
    Streams,
)
from .output import say
from .timelines import measured_timeline, predicted_schedule

if TYPE_CHECKING:
    import tvm

    from ..report.html import Report

COLUMNS = ("timeline", "us", "streams", "kernels", "sum of kernels us", "from")


def trace(
    source: Annotated[Path, typer.Argument(help="A module from convoy build, or a model file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Trace file to write (JSON).")],
    params: Params = None,
    batch: Batch = None,
    shape: Shape = None,
    end: End = "",
    constant: Constant = None,
    precision: Precision = "float16",
    objective: Objective = "graph",
    backends: Backends = options.ALL_BACKENDS,
    records: Records = None,
    search: Search = "exact",
    streams: Streams = "auto",
    html: Html = None,
) -> None:
    """Write a trace of all kernels and streams for ui.perfetto.dev or chrome://tracing.

    With a GPU the run is also measured, after compiling the model; otherwise the trace is
    predicted.
    """
    from ..paths import check_writable
    from ..report import html as pages
    from ..report import tables
    from ..report import trace as traces

    for path in filter(None, (output, html)):
        check_writable(path)
    if source.suffix == ".so":
        report = _of_module(source)
    else:
        placing = options.placement_options(objective, backends, records, search)
        mod = options.read_model(source, params, batch, shape, end, constant)
        name = options.network_name(source, batch)
        report = _of_network(mod, name, precision, streams, placing)
    lines = report.timelines
    traces.write(output, lines, report.name)
    rows = [
        (line.title, line.makespan_us, len(line.streams), len(line.spans), line.busy_us, line.how)
        for line in lines
    ]
    tables.show(COLUMNS, rows)
    say(f"{output}: open it at https://ui.perfetto.dev or chrome://tracing")
    if html is not None:
        pages.write(html, report)


def _of_module(path: Path) -> Report:
    from ..report import html as pages
    from ..runtime.compiled import load

    compiled = load(path)
    return pages.of_compiled(path.stem, compiled, measured_timeline(compiled))


def _of_network(
    mod: tvm.IRModule,
    name: str,
    precision: str,
    streams: str,
    placing: PlacementOptions,
) -> Report:
    from .. import pipeline
    from ..report import html as pages
    from ..runtime import present_device

    if present_device() is None:
        placement = pipeline.place(mod, precision=precision, streams=streams, **placing)
        return pages.of_placement(name, placement, predicted_schedule(placement, streams))
    compiled = pipeline.build(mod, "cuda", precision=precision, streams=streams, **placing)
    return pages.of_compiled(name, compiled, measured_timeline(compiled))
