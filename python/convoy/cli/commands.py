"""The commands that take a network: ``convoy place``, ``build``, ``run`` and ``trace``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

if TYPE_CHECKING:
    from ..placement.placer import Placement
    from ..report.timeline import Timeline
    from ..runtime.compiled import CompiledModule

Model = Annotated[Path, typer.Argument(help="Relay text, Relay JSON or ONNX file.")]
Params = Annotated[
    Optional[Path],  # noqa: UP045 (typer evaluates it on Python 3.10)
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
Seconds = Annotated[float, typer.Option(help="For timing whole networks (search evolve).")]
Streams = Annotated[str, typer.Option(help="auto, 1, or how many streams branches may use.")]
Html = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(help="Write a page with plan, timelines, graph and memory."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def progress(label: str, done: int, total: int) -> None:
    """One line that is rewritten on a terminal; every fiftieth line otherwise."""
    if sys.stderr.isatty():
        print(f"\r\033[Kmeasuring {done}/{total}  {label[:90]}", end="", file=sys.stderr)
        if done >= total:
            print(file=sys.stderr)
    elif done % 50 == 0 or done == total:
        print(f"measuring {done}/{total}  {label}", file=sys.stderr)


def place(
    model: Model,
    params: Params = None,
    batch: Batch = None,
    precision: Precision = "float16",
    objective: Objective = "graph",
    backends: Backends = "cudnn,cutlass,hopper,tvm",
    records: Records = None,
    search: Search = "exact",
    seconds: Seconds = 60.0,
    costs: Annotated[
        str, typer.Option(help="measured, recorded, predicted or random; none: what there is.")
    ] = "",
    explain: Annotated[
        bool, typer.Option("--explain", help="Also rivals, declines, and other objectives.")
    ] = False,
    out: Annotated[Optional[Path], typer.Option(help="Write the plan as JSON.")] = None,  # noqa: UP045
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Choose backend and kernel of every convolution and print why.

    With a GPU candidates that no record knows are measured; without one, records of an H200
    decide. With --json the plan is printed, with --explain --json the reasons.
    """
    from ..frontend import model_file as models
    from ..placement.api import place as place_module

    mod = models.read(model, params, batch)
    placement = place_module(
        mod,
        precision=precision,
        objective=objective,
        backends=backends.split(","),
        records=records,
        search=search,
        seconds=seconds,
        costs=costs or None,
        explain=explain or html is not None,
        progress=progress,
    )
    if out is not None:
        out.write_text(placement.plan.dumps(), encoding="utf-8")
    if html is not None:
        from ..report import html as pages

        pages.write(html, pages.of_placement(_name(model, batch), placement))
    if as_json and explain and placement.explanation is not None:
        print(json.dumps(placement.explanation.to_json(), indent=1))
    elif as_json:
        print(placement.plan.dumps())
    else:
        show(placement, explain)


def show(placement: Placement, reasons: bool = False) -> None:
    """Print a placement as a table with a summary; with ``reasons`` its explanation."""
    from ..placement import explain
    from ..report import tables

    explanation = placement.explanation if reasons else None
    if explanation is not None:
        tables.show(explain.DETAIL_COLUMNS, explain.details(explanation))
    else:
        tables.show(explain.COLUMNS, explain.rows(placement.plan))
    print(explain.summary(placement.plan))
    if placement.plan.source == "none":
        print(
            "convoy tune measures figures on a GPU, --costs predicted estimates them from records"
        )
    for line in explain.consequences(explanation) if explanation else ():
        print(line)
    for native in dict.fromkeys(map(str, placement.native)):
        print(f"left to TVM's own kernels: {native}")


def build(
    model: Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")],
    target: Annotated[str, typer.Option(help="cuda or llvm.")] = "cuda",
    params: Params = None,
    batch: Batch = None,
    precision: Annotated[str, typer.Option(help="Default: float16 on cuda, float32 on llvm.")] = "",
    objective: Objective = "graph",
    backends: Backends = "cudnn,cutlass,hopper,tvm",
    records: Records = None,
    search: Search = "exact",
    streams: Streams = "auto",
    cuda_graph: Annotated[
        bool, typer.Option("--graph/--no-graph", help="Replay the network as one CUDA graph.")
    ] = True,
    html: Html = None,
) -> None:
    """Compile a network into one shared object."""
    from ..frontend import model_file as models
    from ..pipeline import build as build_module

    mod = models.read(model, params, batch)
    options: dict[str, Any] = {"streams": streams}
    if target != "llvm":
        options |= {
            "objective": objective,
            "backends": backends.split(","),
            "records": records,
            "search": search,
            "progress": progress,
            "cuda_graph": cuda_graph,
        }
    compiled = build_module(mod, target, precision=precision or None, **options)
    compiled.export_library(output)
    print(f"{output}: {output.stat().st_size / 1e6:.1f} MB for {compiled.meta.target}")
    for info in compiled.meta.inputs:
        print(f"input {info.name}: {info.dtype} of shape {info.shape}")
    if compiled.schedule is not None:
        print(compiled.schedule)
    if html is not None:
        from ..report import html as pages

        pages.write(html, pages.of_compiled(_name(model, batch), compiled, _measured(compiled)))


def trace(
    source: Annotated[Path, typer.Argument(help="A module from convoy build, or a model file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Trace file to write (JSON).")],
    params: Params = None,
    batch: Batch = None,
    precision: Precision = "float16",
    objective: Objective = "graph",
    backends: Backends = "cudnn,cutlass,hopper,tvm",
    records: Records = None,
    search: Search = "exact",
    streams: Streams = "auto",
    html: Html = None,
) -> None:
    """Write when each kernel runs and on which stream, for ui.perfetto.dev or chrome://tracing.

    With a GPU the run is also measured, for which a model is compiled first; without one its trace
    is predicted.
    """
    from ..report import html as pages
    from ..report import tables
    from ..report import trace as traces

    if source.suffix == ".so":
        from ..runtime.compiled import load

        compiled = load(source)
        report = pages.of_compiled(source.stem, compiled, _measured(compiled))
    else:
        from ..frontend import model_file as models
        from ..pipeline import build as build_module
        from ..placement.api import place as place_module

        mod, name = models.read(source, params, batch), _name(source, batch)
        options: dict[str, Any] = {
            "precision": precision,
            "objective": objective,
            "backends": backends.split(","),
            "records": records,
            "search": search,
            "progress": progress,
        }
        if _gpu():
            compiled = build_module(mod, "cuda", streams=streams, **options)
            report = pages.of_compiled(name, compiled, _measured(compiled))
        else:
            report = pages.of_placement(name, place_module(mod, **options))
    lines = report.timelines
    traces.write(output, lines, report.name)
    columns = ("timeline", "us", "streams", "kernels", "sum of kernels us", "from")
    rows = [
        (line.title, line.makespan_us, len(line.streams), len(line.spans), line.busy_us, line.how)
        for line in lines
    ]
    tables.show(columns, rows)
    print(f"{output}: open it at https://ui.perfetto.dev or chrome://tracing")
    if html is not None:
        pages.write(html, report)


def _name(model: Path, batch: int | None) -> str:
    return model.stem if batch is None else f"{model.stem}, N={batch}"


def _gpu() -> bool:
    from ..errors import NoGpu
    from ..runtime import current_device

    try:
        current_device()
    except NoGpu:
        return False
    return True


def _measured(compiled: CompiledModule) -> Timeline | None:
    """The module's measured timeline; None where it cannot run here, with a line that says why."""
    from ..errors import NoGpu, WrongDevice
    from ..report.measured import measure

    try:
        return measure(compiled, progress=progress) if compiled.schedule else None
    except (NoGpu, WrongDevice) as err:
        print(f"not measured: {err}", file=sys.stderr)
        return None


def run(
    module: Annotated[Path, typer.Argument(help="A module that convoy build wrote.")],
    inputs: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help=".npz with the inputs by name; none: random ones."),
    ] = None,
    outputs: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help=".npz to write the outputs to, as output_0, output_1, ..."),
    ] = None,
    timed: Annotated[bool, typer.Option("--time", help="Also measure the time.")] = False,
    as_json: Json = False,
) -> None:
    """Run a compiled module once, and time it."""
    import statistics

    import numpy as np

    from ..errors import InvalidOption
    from ..frontend import model_file as models
    from ..runtime.compiled import load

    compiled = load(module)
    session = compiled.session()
    known = {name: (shape, dtype) for name, shape, dtype in session.input_info}
    values = models.random_inputs(known)
    if inputs is not None:
        arrays = models.load_arrays(inputs)
        if unknown := arrays.keys() - known.keys():
            raise InvalidOption(f"input {min(unknown)!r}", f"one of {', '.join(known)}")
        values.update(arrays)
    session.run(values)
    results = {f"output_{i}": session.output(i).numpy() for i in range(session.num_outputs)}
    if outputs is not None:
        np.savez(outputs, **results)
    report: dict[str, Any] = {name: list(value.shape) for name, value in results.items()}
    if timed:
        rough = statistics.median(session.time(repeat=3, number=3))
        number = max(1, min(100, int(20 / rough)))
        repeat = max(5, min(100, int(1000 / (rough * number))))
        back_to_back = session.time(repeat, number)
        alone = session.time(repeat, 1)
        report |= {
            "ms": statistics.median(back_to_back),
            "spread_ms": _half_spread(back_to_back),
            "latency_ms": statistics.median(alone),
            "latency_spread_ms": _half_spread(alone),
            "samples": repeat,
        }
    if as_json:
        print(json.dumps(report))
        return
    for name, value in results.items():
        print(f"{name}: shape {value.shape}, mean {value.mean():.6g}, max {value.max():.6g}")
    if timed:
        print(
            f"{report['ms']:.3f} ms (+-{report['spread_ms']:.3f}) back to back, "
            f"{report['latency_ms']:.3f} ms (+-{report['latency_spread_ms']:.3f}) synchronised"
        )


def _half_spread(values: list[float]) -> float:
    ordered = sorted(values)
    return (ordered[round(0.9 * (len(ordered) - 1))] - ordered[int(0.1 * (len(ordered) - 1))]) / 2
