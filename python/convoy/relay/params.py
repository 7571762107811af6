"""Parameter files: names and tensors in the format of `tvm.runtime.save_param_dict`.

uint64 magic, uint64 0, uint64 n, n names (uint64 length, bytes), uint64 n, n tensors
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from convoy.errors import RelaySyntaxError, RelayTypeError
from convoy.relay.json_format.tensor_bytes import decode_at, encode
from convoy.relay.lazy import tvm

_MAGIC = 0xF7E58D4F05049CB7


def load_param_dict(data: bytes | bytearray | str | os.PathLike[str]) -> dict[str, Any]:
    """Read a parameter file.

    Args:
        data: The bytes of the file, or its path.

    Returns:
        TVM tensors by name.

    Raises:
        RelaySyntaxError: Not a parameter file, or a truncated one.
    """
    if isinstance(data, (str, os.PathLike)):
        data = Path(data).read_bytes()
    return {name: tvm.runtime.tensor(value) for name, value in read_params(bytes(data)).items()}


def read_params(data: bytes) -> dict[str, np.ndarray]:
    """Read the bytes of a parameter file as numpy arrays; raises as `load_param_dict`."""
    reader = _Reader(data)
    if reader.uint64() != _MAGIC:
        raise RelaySyntaxError(
            "bytes that do not begin with the mark of a parameter file",
            "what relay.save_param_dict writes",
        )
    reader.uint64()
    names = [reader.text() for _ in range(reader.count())]
    count = reader.count()
    if count != len(names):
        raise RelaySyntaxError(f"{len(names)} names and {count} tensors", "as many of both")
    arrays = {}
    for name in names:
        arrays[name], reader.at = decode_at(data, reader.at)
    if reader.at != len(data):
        raise RelaySyntaxError(f"{len(data) - reader.at} bytes behind the last tensor", "none")
    return arrays


def save_param_dict(params: Mapping[str, Any]) -> bytearray:
    """Write numpy arrays or TVM tensors by name as the bytes of a parameter file."""
    names = [name.encode("utf-8") for name in params]
    parts = [struct.pack("<QQQ", _MAGIC, 0, len(names))]
    parts += [struct.pack("<Q", len(name)) + name for name in names]
    parts.append(struct.pack("<Q", len(names)))
    parts += [encode(to_array(value, f"params['{name}']")) for name, value in params.items()]
    return bytearray().join(parts)


def to_array(value: Any, what: str = "a value") -> np.ndarray:
    """Convert an array, a number or a TVM tensor to a numpy array.

    Args:
        value: The value.
        what: Its name, for the error.

    Raises:
        RelayTypeError: Anything else.
    """
    if hasattr(value, "numpy"):
        value = value.numpy()
    array = np.asarray(value)
    if array.dtype.hasobject or array.dtype.kind in "SUmM":
        got = type(value).__name__
        raise RelayTypeError(f"{what}, which is a {got}", "a numpy array or a TVM tensor")
    return array


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise RelaySyntaxError(
                f"a parameter file of {len(self.data)} bytes that ends too soon", "a whole file"
            )
        self.at += size
        return self.data[self.at - size : self.at]

    def uint64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def count(self) -> int:
        count = self.uint64()
        if count > len(self.data):
            raise RelaySyntaxError(f"{count} entries in {len(self.data)} bytes", "a whole file")
        return count

    def text(self) -> str:
        try:
            return self.take(self.uint64()).decode("utf-8")
        except UnicodeDecodeError:
            raise RelaySyntaxError("a parameter name that is no text", "UTF-8") from None
