"""The command ``convoy run``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ..errors import InvalidOption
from .options import Json
from .output import say

if TYPE_CHECKING:
    import numpy as np

    from ..runtime.session import Session


def run(
    module: Annotated[Path, typer.Argument(help="A module written by convoy build.")],
    inputs: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help=".npz with the inputs by name; default: random ones."),
    ] = None,
    outputs: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help=".npz to write the outputs to, by name."),
    ] = None,
    trusted: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(help="Public key that must have signed the module; may be repeated."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a compiled module once; ``convoy bench`` measures it."""
    from ..frontend import model_file
    from ..paths import check_writable
    from ..runtime.compiled import load

    if outputs is not None:
        check_writable(outputs)
    if module.suffix in model_file.KINDS:
        raise InvalidOption(
            f"{module}, a model", "a module", f"convoy build {module} -o {module.stem}.so makes one"
        )
    session = load(module, trusted=trusted or None).session()
    session.run(_inputs(session, inputs))
    results = {
        name: session.output(i).numpy() for i, (name, _, _) in enumerate(session.output_info)
    }
    if outputs is not None:
        model_file.save_arrays(outputs, results)
    if as_json:
        print(json.dumps({name: list(value.shape) for name, value in results.items()}))
        return
    for name, value in results.items():
        say(f"{name}: shape {value.shape}, mean {value.mean():.6g}, max {value.max():.6g}")


def _inputs(session: Session, path: Path | None) -> Mapping[str, np.ndarray]:
    """Random inputs, replaced by those of an ``.npz`` file. Raises InvalidOption."""
    from ..frontend import model_file

    known = {name: (shape, dtype) for name, shape, dtype in session.input_info}
    values = model_file.random_inputs(known)
    given = model_file.load_arrays(path) if path is not None else {}
    if unknown := given.keys() - known.keys():
        raise InvalidOption(f"input {min(unknown)!r}", f"one of {', '.join(known)}")
    return {**values, **given}
