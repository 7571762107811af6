"""Read an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InvalidModel, InvalidOption

if TYPE_CHECKING:
    import onnx

#: How files begin whose content is elsewhere.
_LFS = b"version https://git-lfs"


def load(path: Path) -> onnx.ModelProto:
    """Read a model; the data of tensors in other files is left there.

    Raises:
        InvalidOption: A missing file, or the package onnx is not installed.
        InvalidModel: Another kind of file.
    """
    try:
        import onnx
    except ImportError as err:
        raise InvalidOption(
            f"an ONNX model without the onnx package ({err})",
            "onnx",
            'pip install "tvm-convoy[onnx]"',
        ) from None
    if not path.is_file():
        raise InvalidOption(f"model file {path}, which does not exist", "an existing file")
    with path.open("rb") as file:
        if file.read(len(_LFS)) == _LFS:
            raise InvalidModel(
                f"{path}, a pointer of Git LFS", "the model itself", "Fetch it with git lfs pull."
            )
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as err:  # protobuf's
        raise InvalidModel(f"{path}, which cannot be read ({err})", "an ONNX model") from err
    if not model.graph.output:
        raise InvalidModel(f"{path} without any output", "an ONNX model")
    return model
