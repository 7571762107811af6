"""The command ``convoy run``."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from ..errors import InvalidOption
from .options import Json
from .output import say

if TYPE_CHECKING:
    import numpy as np

    from ..runtime.session import Session


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
    trusted: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(help="Public key that must have signed the module; may be repeated."),
    ] = None,
    timed: Annotated[bool, typer.Option("--time", help="Also measure the time.")] = False,
    as_json: Json = False,
) -> None:
    """Run a compiled module once, and time it."""
    import numpy as np

    from ..runtime.compiled import load

    session = load(module, trusted=trusted or None).session()
    session.run(_inputs(session, inputs))
    results = {f"output_{i}": session.output(i).numpy() for i in range(session.num_outputs)}
    if outputs is not None:
        np.savez(outputs, **results)
    times = _time(session) if timed else {}
    if as_json:
        shapes = {name: list(value.shape) for name, value in results.items()}
        print(json.dumps({**shapes, **times}))
        return
    for name, value in results.items():
        say(f"{name}: shape {value.shape}, mean {value.mean():.6g}, max {value.max():.6g}")
    if timed:
        say(
            f"{times['ms']:.3f} ms (+-{times['spread_ms']:.3f}) back to back, "
            f"{times['latency_ms']:.3f} ms (+-{times['latency_spread_ms']:.3f}) synchronised"
        )


def _inputs(session: Session, path: Path | None) -> Mapping[str, np.ndarray[Any, Any]]:
    """Random inputs, replaced by those of an ``.npz`` file. Raises InvalidOption."""
    from ..frontend import model_file

    known = {name: (shape, dtype) for name, shape, dtype in session.input_info}
    values = model_file.random_inputs(known)
    given = model_file.load_arrays(path) if path is not None else {}
    if unknown := given.keys() - known.keys():
        raise InvalidOption(f"input {min(unknown)!r}", f"one of {', '.join(known)}")
    return {**values, **given}


def _time(session: Session) -> dict[str, float]:
    """Median and spread in milliseconds, of runs back to back and of synchronised single runs."""
    rough = statistics.median(session.time(repeat=3, number=3))
    number = max(1, min(100, int(20 / rough)))
    repeat = max(5, min(100, int(1000 / (rough * number))))
    back_to_back, alone = session.time(repeat, number), session.time(repeat, 1)
    return {
        "ms": statistics.median(back_to_back),
        "spread_ms": _half_spread(back_to_back),
        "latency_ms": statistics.median(alone),
        "latency_spread_ms": _half_spread(alone),
        "samples": repeat,
    }


def _half_spread(values: list[float]) -> float:
    """Half the distance between the 10th and the 90th percentile."""
    ordered, last = sorted(values), len(values) - 1
    return (ordered[round(0.9 * last)] - ordered[int(0.1 * last)]) / 2
