"""The command ``convoy bench``."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ..errors import InvalidOption
from ..ir.defaults import BUDGET_S
from . import options
from .options import (
    Backends,
    BudgetSeconds,
    Constant,
    End,
    Html,
    Json,
    Kernels,
    Objective,
    Params,
    Records,
    Shape,
    Streams,
)
from .output import say

if TYPE_CHECKING:
    from ..bench.result import Result, Row

COLUMNS = ("batch", "system", "p50 ms", "p99 ms", "device ms", "items/s", "memory", "build s")
#: Layers that are printed for each batch size.
MOST_LAYERS = 10


def bench(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL",
            help="Relay text or JSON, ONNX, torch.export (.pt2), or a module of convoy build.",
        ),
    ],
    batch: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="Batch sizes: 1 8 64. Default: the model's own."),
    ] = None,
    target: Annotated[str, typer.Option(help="cuda or llvm; default: cuda with a GPU.")] = "",
    precision: Annotated[str, typer.Option(help="Default: float16 on cuda, float32 on llvm.")] = "",
    against: Annotated[
        str, typer.Option(help="Peers, separated by commas: torch, torch.compile, onnxruntime.")
    ] = "",
    params: Params = None,
    shape: Shape = None,
    end: End = "",
    constant: Constant = None,
    objective: Objective = "graph",
    backends: Backends = options.ALL_BACKENDS,
    records: Records = None,
    kernels: Kernels = "shipped",
    budget: BudgetSeconds = BUDGET_S,
    streams: Streams = "auto",
    seconds: Annotated[
        float, typer.Option(help="Seconds of timing for each system and batch size.")
    ] = 2.0,
    out: Annotated[Optional[Path], typer.Option(help="Write the result as JSON.")] = None,  # noqa: UP045
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Measure latency, throughput, memory, build time, and time by layer.

    Latency is that of synchronized calls, throughput that of back-to-back calls, device time that
    of a replayed CUDA graph. Inputs are on the device. Peers take turns in the same process.
    """
    from ..bench import page
    from ..bench.run import bench as measure
    from ..paths import check_writable

    path, batches = model_and_batches(arguments, batch or [])
    for file in filter(None, (out, html)):
        check_writable(file)
    placing = options.placement_options(objective, backends, records, "exact", kernels, budget)
    result = measure(
        path,
        batches or (None,),
        target=target,
        precision=precision or None,
        against=[name for name in against.split(",") if name],
        params=params,
        shapes=options.shapes(shape or []),
        outputs=options.ends(end),
        constants=options.constants(constant or []),
        seconds=seconds,
        options={**placing, "streams": streams},
    )
    text = json.dumps(result.to_json(), indent=1)
    if out is not None:
        out.write_text(text, encoding="utf-8")
    if html is not None:
        page.write(html, result)
    if as_json:
        print(text)
    else:
        show(result)


def model_and_batches(arguments: list[str], batch: list[str]) -> tuple[Path, list[int]]:
    """The model and the batch sizes: ``--batch 1 8 64`` and ``--batch 1,8,64`` alike."""
    sizes = [size for text in batch for size in text.split(",")]
    models = [text for text in arguments if not text.isdigit()]
    sizes += [text for text in arguments if text.isdigit()]
    if len(models) != 1:
        raise InvalidOption(f"{len(models)} models ({' '.join(arguments)})", "one")
    if wrong := [size for size in sizes if not size.isdigit() or int(size) < 1]:
        raise InvalidOption(f"--batch {wrong[0]}", "numbers from 1 on, such as --batch 1 8 64")
    return Path(models[0]), [int(size) for size in sizes]


def show(result: Result) -> None:
    """Print the rows, what was skipped and why, and the heaviest layers of each batch size."""
    from ..placement import explain
    from ..report import tables

    say(f"{result.model} on {result.device} ({result.target})")
    tables.show(COLUMNS, [_cells(row) for row in result.rows if not row.skipped])
    skipped = dict.fromkeys(f"{row.system}: {row.skipped}" for row in result.rows if row.skipped)
    say(*(line for text in skipped for line in textwrap.wrap(text, explain.WIDTH)))
    for row in result.rows:
        if row.error is not None:
            say(f"batch {row.batch}: outputs of {row.system} differ by {row.error:.1e}")
    for row in result.rows:
        if not row.layers:
            continue
        shown = row.layers[:MOST_LAYERS]
        cells = [explain.row(x.name, x.share, x.us, x.backend, x.kernel) for x in shown]
        guess = f" (predicted {row.predicted_ms:.3f} ms)" if row.predicted_ms is not None else ""
        say("", f"Where the time goes at batch {row.batch}{guess}")
        tables.show(explain.COLUMNS, cells)
        if rest := row.layers[MOST_LAYERS:]:
            say(f"and {len(rest)} more operations, {100 * sum(x.share for x in rest):.1f}%")


def _cells(row: Row) -> tuple[object, ...]:
    from ..report.units import size

    memory = size(max(0, row.memory_bytes)) if row.memory_bytes is not None else None
    return (
        row.batch, row.system, _ms(row.p50_ms), _ms(row.p99_ms), _ms(row.device_ms),
        f"{row.per_s:.1f}" if row.per_s is not None else None, memory,
        f"{row.build_s:.1f}" if row.build_s is not None else None,
    )  # fmt: skip


def _ms(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"
