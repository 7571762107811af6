"""Read an ONNX file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InvalidModel, InvalidOption

if TYPE_CHECKING:
    import onnx

#: How files begin whose content is elsewhere.
_LFS = b"version https://git-lfs"


def load(model: str | os.PathLike[str] | bytes | onnx.ModelProto) -> onnx.ModelProto:
    """Read a model, if it is not read yet; the data of tensors in other files is left there.

    Args:
        model: A file, its content, or a model.

    Raises:
        InvalidOption: A missing file, or the package onnx is not installed.
        InvalidModel: Another kind of file, or of object.
    """
    try:
        import onnx
    except ImportError as err:
        raise InvalidOption(
            f"an ONNX model without the onnx package ({err})",
            "onnx",
            'pip install "tvm-convoy[onnx]"',
        ) from None
    name = "an ONNX model"
    if isinstance(model, str | os.PathLike):
        name, model = str(model), _read(Path(model))
    elif isinstance(model, bytes):
        model = _parse(model, "bytes")
    elif not isinstance(model, onnx.ModelProto):
        raise InvalidModel(f"a {type(model).__name__}", "a path, bytes or an onnx.ModelProto")
    if not model.graph.output:
        raise InvalidModel(f"{name} without outputs", "a model")
    return model


def _read(path: Path) -> onnx.ModelProto:
    if not path.is_file():
        lack = "is no file" if path.exists() else "does not exist"
        raise InvalidOption(f"model file {path}, which {lack}", "an existing file")
    content = path.read_bytes()
    if content.startswith(_LFS):
        raise InvalidModel(
            f"{path}, a pointer of Git LFS", "the model itself", "Fetch it with git lfs pull."
        )
    return _parse(content, str(path))


def _parse(content: bytes, name: str) -> onnx.ModelProto:
    import onnx

    try:
        return onnx.load_model_from_string(content)
    except Exception as err:  # protobuf's
        raise InvalidModel(f"{name}, which cannot be read ({err})", "an ONNX model") from err
