"""The command ``convoy place``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

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
    Json,
    Kernels,
    Model,
    Objective,
    Params,
    Precision,
    Records,
    Search,
    Seconds,
    Shape,
)
from .output import say
from .timelines import predicted_schedule

if TYPE_CHECKING:
    from ..placement.placement import Placement


def place(
    model: Model,
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
    kernels: Kernels = "shipped",
    budget: BudgetSeconds = BUDGET_S,
    seconds: Seconds = 60.0,
    costs: Annotated[
        str, typer.Option(help="measured, recorded or predicted; default: as available.")
    ] = "",
    explain: Annotated[
        bool, typer.Option("--explain", help="Also show rivals, declines and other objectives.")
    ] = False,
    show_all: Annotated[
        bool, typer.Option("--all", help="Show all operations, not only the heaviest.")
    ] = False,
    out: Annotated[Optional[Path], typer.Option(help="Write the plan as JSON.")] = None,  # noqa: UP045
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Select a backend and kernel for each operator and print the plan.

    With a GPU, candidates without a record are measured; otherwise records of an H200 are used.
    --json prints the plan, --explain --json the reasons.
    """
    from ..build_options import check_options
    from ..paths import check_writable
    from ..pipeline import find_backends
    from ..pipeline import place as place_network

    for path in filter(None, (out, html)):
        check_writable(path)
    placing = options.placement_options(objective, backends, records, search, kernels, budget)
    check_options(precision=precision, costs=costs or None, seconds=seconds, **placing)
    find_backends(placing["backends"])
    placement = place_network(
        options.read_model(model, params, batch, shape, end, constant),
        precision=precision,
        seconds=seconds,
        costs=costs or None,
        explain=explain or html is not None,
        **placing,
    )
    if out is not None:
        out.write_text(placement.plan.dumps(), encoding="utf-8")
    if html is not None:
        from ..report import html as pages

        name = options.network_name(model, batch)
        pages.write(html, pages.of_placement(name, placement, predicted_schedule(placement)))
    if as_json and explain and placement.explanation is not None:
        print(json.dumps(placement.explanation.to_json(), indent=1))
    elif as_json:
        print(placement.plan.dumps())
    else:
        show(placement, explain, show_all)


def show(placement: Placement, reasons: bool = False, every: bool = False) -> None:
    """Print a placement as a table with a summary; with ``reasons`` its explanation behind it."""
    from ..placement import explain
    from ..placement.explanation_text import consequences, details, left_to_tvm
    from ..report import tables

    plan, explanation = placement.plan, placement.explanation if reasons else None
    schedule = predicted_schedule(placement)
    table = explain.table(plan, schedule, None if every else explain.MOST)
    tables.show(explain.COLUMNS, table.rows)
    say(*filter(None, [table.rest]), explain.summary(plan, schedule))
    if plan.source == "none":
        say("convoy tune measures on a GPU, --costs predicted estimates from records")
    if explanation is not None:
        say("", *details(explanation), "", *consequences(explanation))
    say(*left_to_tvm(placement.native))
