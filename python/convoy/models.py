"""Reading a model file of any kind that convoy takes: Relay text or JSON, ONNX."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS = {
    ".relay": "Relay text",
    ".txt": "Relay text",
    ".json": "Relay JSON (save_json)",
    ".onnx": "ONNX",
}


def read(path: Path, params: Path | None = None, batch: int | None = None) -> Any:
    """The Relax module of a file, with its parameters bound.

    ``params`` is a file of Relay's save_param_dict or an ``.npz``; a Relay network without one
    gets random parameters (normal weights scaled by their fan-in, batch norms near identity), which
    is enough for placing and timing. ``batch`` replaces the first dimension of Relay's inputs.

    Raises InvalidOption for another suffix or a missing file, and the errors of convoy.relay.
    """
    if path.suffix not in KINDS:
        known = ", ".join(f"{suffix} ({kind})" for suffix, kind in KINDS.items())
        raise InvalidOption(f"model file {path}", f"one of {known}")
    if not path.is_file():
        raise InvalidOption(f"model file {path}, which does not exist", "an existing file")
    if path.suffix == ".onnx":
        return _onnx(path, batch)
    from . import relay
    from .relay.batch import with_batch
    from .relay.convert import to_relax

    text = path.read_text(encoding="utf-8", errors="replace")
    module = relay.load_json(text) if path.suffix == ".json" else relay.parse(text, str(path))
    if batch is not None:
        module = with_batch(module, batch)
    given = load_params(params) if params else random_params(module)
    return to_relax(module, given)


def load_params(path: Path) -> dict[str, np.ndarray]:
    """Parameters by name, of a file of Relay's save_param_dict or an ``.npz``."""
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return dict(arrays)
    from . import relay

    return {name: value.numpy() for name, value in relay.load_param_dict(path.read_bytes()).items()}


def random_params(module: Any, seed: int = 0) -> dict[str, np.ndarray]:
    """Values for all arguments of a Relay module's main but the first."""
    rng = np.random.default_rng(seed)
    values = {}
    for var in module["main"].params[1:]:
        shape = tuple(int(d) for d in var.checked_type.shape)
        dtype = str(var.checked_type.dtype)
        if var.name_hint.endswith(("gamma", "var", "variance")):
            value = rng.uniform(0.5, 1.5, shape)
        elif len(shape) > 1:
            value = rng.normal(0, (2.0 / max(1, math.prod(shape[1:]))) ** 0.5, shape)
        else:
            value = rng.normal(0, 0.1, shape)
        values[var.name_hint] = np.asarray(value).astype(dtype)
    return values


def random_inputs(
    inputs: Mapping[str, tuple[tuple[int, ...], str]], seed: int = 7
) -> dict[str, np.ndarray]:
    """Uniform numbers from -1 to 1 for inputs given as name -> (shape, dtype)."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.uniform(-1, 1, shape).astype(dtype) for name, (shape, dtype) in inputs.items()
    }


def _onnx(path: Path, batch: int | None) -> Any:
    if batch is not None:
        raise InvalidOption("--batch for an ONNX model", "a model exported with that batch")
    try:
        import onnx
    except ImportError as err:
        raise InvalidOption(
            f"an ONNX model without the onnx package ({err})",
            "onnx",
            'pip install "tvm-convoy[onnx]"',
        ) from None
    from tvm.relax.frontend.onnx import from_onnx

    return from_onnx(onnx.load(path))
