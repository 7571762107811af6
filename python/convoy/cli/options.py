"""Arguments and options that several commands share.

``Optional`` instead of ``| None`` throughout: typer evaluates annotations on Python 3.10.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional, TypedDict

import typer

from ..errors import InvalidOption
from ..ir.defaults import BACKENDS, BUDGET_S

if TYPE_CHECKING:
    import numpy as np
    import tvm

Model = Annotated[Path, typer.Argument(help="Relay text or JSON, ONNX, or torch.export (.pt2).")]
Params = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(help="Parameters (save_param_dict or .npz); default: random ones."),
]
Batch = Annotated[Optional[int], typer.Option(help="Replace the batch size.")]  # noqa: UP045
Shape = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(help="Shape of an input with open axes: name=1,3,224,224. Repeatable."),
]
End = Annotated[
    str, typer.Option("--end", help="End an ONNX model at these tensors, separated by commas.")
]
Constant = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(help="Fix an input of an ONNX model to a value: sr=16000. Repeatable."),
]
Precision = Annotated[str, typer.Option(help="float32, tf32_conv, tf32, float16 or bfloat16.")]
Objective = Annotated[str, typer.Option(help="How it will be run: graph, stream or sync.")]
Backends = Annotated[str, typer.Option(help="Backends to choose from, separated by commas.")]
Records = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(help="Your record file, to read and extend."),
]
Search = Annotated[
    str, typer.Option(help="exact (whole graph), greedy, or evolve (refines exact).")
]
Kernels = Annotated[
    str, typer.Option(help="shipped: only compiled kernels; all: compile every candidate (nvcc).")
]
BudgetSeconds = Annotated[
    float, typer.Option("--budget", help="Seconds for measuring candidates; inf: measure all.")
]
Seconds = Annotated[float, typer.Option(help="Seconds for timing networks (search evolve).")]
Streams = Annotated[str, typer.Option(help="auto, or the maximum number of streams.")]
Html = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(help="Write a page with plan, timelines, graph and memory."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

ALL_BACKENDS = ",".join(BACKENDS)


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


def read_model(
    path: Path,
    params: Path | None,
    batch: int | None,
    shape: list[str] | None = None,
    end: str = "",
    constant: list[str] | None = None,
) -> tvm.IRModule:
    """Read a model file as the options say; raises InvalidOption and the errors of reading."""
    from ..bench import models
    from ..progress import Stages

    with Stages().stage("import"):
        sizes, values = shapes(shape or []), constants(constant or [])
        return models.read(path, params, batch, sizes, ends(end), values)


def ends(text: str) -> list[str] | None:
    """Return the names in ``--end``; None for the model's own outputs."""
    return text.split(",") if text else None


def constants(texts: list[str]) -> dict[str, np.ndarray]:
    """Values by name of texts such as ``sr=16000`` and ``size=640,640``.

    Raises:
        InvalidOption: Another text.
    """
    if not texts:
        return {}
    import numpy as np

    found = {}
    for text in texts:
        name, _, numbers = text.rpartition("=")
        try:
            values = [_number(number) for number in numbers.split(",")]
        except ValueError:
            name = ""
        if not name:
            raise InvalidOption(f"--constant {text}", "a name and numbers, such as sr=16000")
        found[name] = np.array(values if len(values) > 1 else values[0])
    return found


def _number(text: str) -> float | int | bool:
    """A number, or a bool as ONNX and Python write it."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return int(text)
    except ValueError:
        return float(text)


def shapes(texts: list[str]) -> dict[str, tuple[int, ...]]:
    """Shapes by name of texts such as ``data=1,3,224,224``; ``n=`` is a scalar.

    Raises:
        InvalidOption: Another text.
    """
    found = {}
    for text in texts:
        name, equals, sizes = text.rpartition("=")
        try:
            found[name] = tuple(int(size) for size in sizes.split(",") if size)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise InvalidOption(f"--shape {text}", "a name and sizes, such as data=1,3,224,224")
    return found


def network_name(model: Path, batch: int | None) -> str:
    """Return the name under which reports show a network, such as ``resnet50, N=8``."""
    return model.stem if batch is None else f"{model.stem}, N={batch}"
