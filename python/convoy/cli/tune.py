"""The command ``convoy tune``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ..errors import InvalidOption
from ..ir.defaults import LIBRARIES
from ..ir.workload import Workload
from .options import Constant, End, Shape
from .output import say
from .workloads import find_workloads

if TYPE_CHECKING:
    from ..tune.observer import Outcome

_int = Optional[int]  # noqa: UP045  (typer evaluates annotations on Python 3.10)
_float = Optional[float]  # noqa: UP045
_path = Optional[Path]  # noqa: UP045
_text = Optional[str]  # noqa: UP045


def tune(
    source: Annotated[
        list[Path],
        typer.Argument(help="Relay, ONNX or torch.export files, or workload lists (.jsonl)."),
    ],
    params: Annotated[_path, typer.Option(help="Parameters, for a single model.")] = None,
    batch: Annotated[_int, typer.Option(help="Replace the batch size of models.")] = None,
    shape: Shape = None,
    end: End = "",
    constant: Constant = None,
    precision: Annotated[
        str, typer.Option(help="For models: float32, tf32_conv, tf32, float16 or bfloat16.")
    ] = "float16",
    joint: Annotated[
        bool,
        typer.Option(help="For models: also parallel branches with one input as one convolution."),
    ] = True,
    contains: Annotated[str, typer.Option(help="Only workloads whose key contains this.")] = "",
    write_list: Annotated[
        _path, typer.Option(help="Write the workloads to this list and stop; needs no GPU.")
    ] = None,
    records: Annotated[_path, typer.Option(help="Record file to extend; default: yours.")] = None,
    backends: Annotated[str, typer.Option(help="Separated by commas.")] = ",".join(LIBRARIES),
    search: Annotated[str, typer.Option(help="model, random, exhaustive or order.")] = "model",
    trials: Annotated[int, typer.Option(help="Candidates of each workload; 0: all.")] = 16,
    seconds: Annotated[_float, typer.Option(help="Stop after this many seconds.")] = None,
    measurements: Annotated[_int, typer.Option(help="Stop after this many measurements.")] = None,
    patience: Annotated[
        _int, typer.Option(help="Stop a workload after this many without an improvement of 1%.")
    ] = None,
    compile: Annotated[
        bool, typer.Option(help="--no-compile: only kernels that are already compiled.")
    ] = True,
    neighbours: Annotated[
        bool, typer.Option(help="Also unproposed configurations similar to the best.")
    ] = True,
    gpus: Annotated[_int, typer.Option(help="Number of GPUs to use; default: all.")] = None,
    ray: Annotated[
        _text, typer.Option(help="Ray cluster to measure on: auto, local, or host:port.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random search and of the model.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure candidates of every convolution of a network and record the timings.

    Recorded candidates are not measured again, so a run that was stopped or killed resumes.
    `convoy place` and `convoy build` read the records.
    """
    from ..ir import workload_list
    from ..paths import check_writable
    from ..tune.autotune import autotune
    from ..tune.budget import Budget
    from ..tune.progress import ShowProgress

    if write_list is not None:
        check_writable(write_list)
    found = find_workloads(source, params, batch, precision, joint, shape, end, constant)
    workloads = [workload for workload in found if contains in workload.key]
    if not workloads:
        got = f"no workload with {contains!r} in its key" if found else "no workload to tune"
        example = f", such as {found[0].key}" if found else ""
        raise InvalidOption(got, f"a network with convolutions or GEMMs{example}")
    if write_list is not None:
        say(f"{write_list}: {workload_list.write(write_list, workloads)} workloads")
        return
    with ShowProgress() as observer:
        outcome = autotune(
            workloads,
            records=records,
            backends=backends.split(","),
            search=search,
            budget=Budget(trials or None, seconds, measurements, patience),
            compile=compile,
            neighbours=neighbours,
            gpus=gpus,
            ray=ray,
            seed=seed,
            observer=observer,
        )
    if as_json:
        print(json.dumps(_as_json(workloads, outcome), indent=1))
    else:
        say(_summary(workloads, outcome))


def _as_json(workloads: Sequence[Workload], outcome: Outcome) -> dict[str, object]:
    return {
        "workloads": len(workloads),
        "measured": outcome.measured,
        "failed": outcome.failed,
        "reused": outcome.reused,
        "seconds": round(outcome.seconds, 2),
        "stopped": outcome.stopped,
        "best_us": {w.key: o.measurement.kernel_us for w, o in outcome.best.items()},
    }


def _summary(workloads: Sequence[Workload], outcome: Outcome) -> str:
    total = sum(offer.measurement.kernel_us or 0.0 for offer in outcome.best.values())
    stopped = f"; stopped because {outcome.stopped}" if outcome.stopped else ""
    return (
        f"{len(workloads)} workloads, {outcome.measured} measured in {outcome.seconds:.1f} s "
        f"({outcome.failed} failed), {outcome.reused} taken from records{stopped}; "
        f"the best of each take {total:.1f} us together"
    )
