"""Read a model file: Relay text, Relay JSON or ONNX."""

from __future__ import annotations

import contextlib
import math
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InvalidOption, RelaySyntaxError
from ..paths import check_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import tvm

KINDS = {
    ".relay": "Relay text",
    ".txt": "Relay text",
    ".json": "Relay JSON (save_json)",
    ".onnx": "ONNX",
}


def read(
    path: Path,
    params: Path | None = None,
    batch: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    outputs: Sequence[str] | None = None,
    constants: Mapping[str, Any] | None = None,
) -> tvm.IRModule:
    """Read a model file as a Relax module with its parameters bound.

    Args:
        shapes: Shapes of inputs by name, for those that the model leaves open.
        outputs: Names of tensors to end an ONNX model at, instead of its own outputs.
        constants: Values of inputs of an ONNX model by name, which become constants.
        params: A file of Relay's save_param_dict or an ``.npz``. A Relay network without one gets
            random parameters (normal weights scaled by their fan-in, batch norms near identity),
            which is enough for placement and timing.
        batch: Replaces the first dimension of Relay's inputs, and a symbolic first dimension of an
            ONNX model's.

    Raises:
        InvalidOption: Another suffix, a missing file, or a ``batch`` or shape other than the one
            that a model was exported with.
        DynamicShape: An open size of an ONNX model that no option gives.
        ConvoyError: The errors of convoy.relay and of convoy.from_onnx.
    """
    if path.suffix not in KINDS:
        kinds = {**KINDS, ".pt2": "torch.export"}
        known = ", ".join(f"{suffix} ({kind})" for suffix, kind in kinds.items())
        raise InvalidOption(f"model file {path}", f"one of {known}")
    check_file(path, "model file")
    if path.suffix == ".onnx":
        if params is not None:
            raise InvalidOption("--params for an ONNX model", "none: the model has its weights")
        from .onnx import from_onnx

        return from_onnx(path, shapes, batch, outputs, constants)
    if named := [*(outputs or ()), *(constants or ())]:
        what = "outputs" if outputs else "constants"
        raise InvalidOption(f"{what} {', '.join(named)} of a Relay network", "an ONNX model")
    from .. import relay
    from ..relay.batch import with_batch, with_shapes
    from ..relay.convert import to_relax

    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".json":
        with _named(path):
            module = relay.load_json(text)
    else:
        module = relay.parse(text, str(path))
    if batch is not None:
        module = with_batch(module, batch)
    if shapes:
        module = with_shapes(module, shapes)
    given = load_params(params) if params else random_params(module)
    names = [var.name_hint for var in module["main"].params]
    if unknown := [name for name in given if name not in names]:
        raise InvalidOption(f"parameter {unknown[0]!r} in {params}", f"one of {', '.join(names)}")
    return to_relax(module, given)


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an ``.npz`` by name; raises InvalidOption for any other file."""
    check_file(path, "array file")
    try:
        _check_npz(path)
        with np.load(path) as arrays:
            return dict(arrays)
    except Exception as err:  # the readers of zip and npy raise whatever they come across
        raise InvalidOption(
            f"{path}, which cannot be read ({err})", "an .npz file of numpy.savez"
        ) from err


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Name the file in errors of its content."""
    try:
        yield
    except RelaySyntaxError as err:
        raise err.reworded(f"{path}: {err.got}") from None


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an ``.npz`` of arrays by name, any names: numpy.savez keeps some for itself."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(array))


#: Unpacked bytes of an .npz that are taken for granted, and times its size beyond that.
_NPZ_BYTES, _NPZ_RATIO = 64 << 20, 32


def _check_npz(path: Path) -> None:
    """Raise ValueError where arrays take far more memory than their file, or than they hold."""
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
        if unpacked > _NPZ_BYTES + _NPZ_RATIO * path.stat().st_size:
            raise ValueError(f"it unpacks to {unpacked} bytes")
        for entry in archive.infolist():
            with archive.open(entry) as file:
                version = np.lib.format.read_magic(file)
                if version not in ((1, 0), (2, 0)):
                    raise ValueError(f"{entry.filename} of format {version}")
                read = np.lib.format.read_array_header_1_0
                shape, _, dtype = (read if version == (1, 0) else _header_2)(file)
                if math.prod(shape) * dtype.itemsize > entry.file_size:
                    raise ValueError(f"{entry.filename} of shape {shape}, which is cut short")


_header_2 = np.lib.format.read_array_header_2_0


def load_params(path: Path) -> dict[str, np.ndarray]:
    """Parameters by name, of a file of Relay's save_param_dict or an ``.npz``.

    Raises InvalidOption for a file that cannot be read, RelaySyntaxError for one of another kind.
    """
    if path.suffix == ".npz":
        return load_arrays(path)
    check_file(path, "parameter file")
    from ..relay.params import read_params

    with _named(path):
        return read_params(path.read_bytes())


def random_params(module: Any, seed: int = 0) -> dict[str, np.ndarray]:
    """Draw values for all parameters of a Relay module's main but the first."""
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
    """Draw uniform values in [-1, 1) for inputs given as name -> (shape, dtype)."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.uniform(-1, 1, shape).astype(dtype) for name, (shape, dtype) in inputs.items()
    }
