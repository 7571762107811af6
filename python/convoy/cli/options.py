"""Arguments and options that several commands share.

``Optional`` instead of ``| None`` throughout: typer evaluates annotations on Python 3.10.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Optional, TypedDict

import typer

Model = Annotated[Path, typer.Argument(help="Relay text, Relay JSON or ONNX file.")]
Params = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(help="Parameters (save_param_dict or .npz); none: random ones."),
]
Batch = Annotated[Optional[int], typer.Option(help="Replace the batch size.")]  # noqa: UP045
Precision = Annotated[str, typer.Option(help="float32, tf32, float16 or bfloat16.")]
Objective = Annotated[str, typer.Option(help="graph, stream or sync: how it will be run.")]
Backends = Annotated[str, typer.Option(help="Backends to choose from, separated by commas.")]
Records = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(help="Your record file, read and added to."),
]
Search = Annotated[
    str, typer.Option(help="exact over the whole graph, greedy, or evolve from the exact one.")
]
Kernels = Annotated[
    str, typer.Option(help="shipped: only compiled kernels; all: compile every candidate (nvcc).")
]
BudgetSeconds = Annotated[
    float, typer.Option("--budget", help="Seconds of measuring on the GPU; inf: every candidate.")
]
Seconds = Annotated[float, typer.Option(help="For timing whole networks (search evolve).")]
Streams = Annotated[str, typer.Option(help="auto, 1, or how many streams branches may use.")]
Html = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(help="Write a page with plan, timelines, graph and memory."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

#: Seconds of measuring, as convoy.place has it.
BUDGET_S = 5.0
ALL_BACKENDS = "cudnn,cutlass,hopper,tvm"


class PlacementOptions(TypedDict):
    """Keyword arguments that ``convoy.place`` and ``convoy.build`` share."""

    objective: str
    backends: list[str]
    records: Path | None
    search: str
    kernels: str
    budget: float | None


def placement_options(
    objective: str,
    backends: str,
    records: Path | None,
    search: str,
    kernels: str = "shipped",
    budget: float = BUDGET_S,
) -> PlacementOptions:
    """Return the options of a command line as keyword arguments."""
    return {
        "objective": objective,
        "backends": backends.split(","),
        "records": records,
        "search": search,
        "kernels": kernels,
        "budget": None if budget == math.inf else budget,
    }


def network_name(model: Path, batch: int | None) -> str:
    """Return the name under which reports show a network, such as ``resnet50, N=8``."""
    return model.stem if batch is None else f"{model.stem}, N={batch}"
