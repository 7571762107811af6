"""The command ``convoy build``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..ir.defaults import BUDGET_S
from . import options
from .options import (
    Backends,
    Batch,
    BudgetSeconds,
    Constant,
    End,
    Html,
    Kernels,
    Model,
    Objective,
    Params,
    Records,
    Search,
    Shape,
    Streams,
)
from .output import say
from .timelines import measured_timeline


def build(
    model: Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")],
    target: Annotated[str, typer.Option(help="cuda or llvm.")] = "cuda",
    params: Params = None,
    batch: Batch = None,
    shape: Shape = None,
    end: End = "",
    constant: Constant = None,
    precision: Annotated[str, typer.Option(help="Default: float16 on cuda, float32 on llvm.")] = "",
    objective: Objective = "graph",
    backends: Backends = options.ALL_BACKENDS,
    records: Records = None,
    search: Search = "exact",
    kernels: Kernels = "shipped",
    budget: BudgetSeconds = BUDGET_S,
    streams: Streams = "auto",
    cuda_graph: Annotated[
        bool, typer.Option("--graph/--no-graph", help="Replay the network as one CUDA graph.")
    ] = True,
    html: Html = None,
    cache: Annotated[
        bool, typer.Option("--cache/--no-cache", help="Reuse the module of an earlier build.")
    ] = True,
) -> None:
    """Compile a network into one shared object."""
    from .. import pipeline
    from ..build_options import check_options
    from ..lower.target import kind_of
    from ..paths import check_writable
    from ..streams.schedule import check_streams

    kind_of(target)
    check_streams(streams)
    check_writable(output)
    if html is not None:
        check_writable(html)
    placing = options.placement_options(objective, backends, records, search, kernels, budget)
    check_options(precision=precision or "float32", **placing)
    pipeline.find_backends(placing["backends"])
    mod = options.read_model(model, params, batch, shape, end, constant)
    if target == "llvm":
        compiled = pipeline.build(
            mod, target, precision=precision or None, streams=streams, cache=cache
        )
    else:
        compiled = pipeline.build(
            mod,
            target,
            precision=precision or None,
            streams=streams,
            cuda_graph=cuda_graph,
            cache=cache,
            **placing,
        )
    compiled.export_library(output)
    say(f"{output}: {output.stat().st_size / 1e6:.1f} MB for {compiled.meta.target}")
    say(
        *(f"input {info.name}: {info.dtype} of shape {info.shape}" for info in compiled.meta.inputs)
    )
    say(
        *(
            f"output {info.name}: {info.dtype} of shape {info.shape}"
            for info in compiled.meta.outputs
        )
    )
    if compiled.schedule is not None:
        say(compiled.schedule)
    if html is not None:
        from ..report import html as pages

        name = options.network_name(model, batch)
        pages.write(html, pages.of_compiled(name, compiled, measured_timeline(compiled)))
