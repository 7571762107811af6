"""Encoding of tensors in JSON and parameter files.

All little-endian: uint64 magic, uint64 0, int32 device type, int32 device id, int32 ndim,
uint8 type code, uint8 bits, uint16 lanes, int64 shape[ndim], int64 size of the data, data.
"""

from __future__ import annotations

import base64
import binascii
import struct
from math import prod

import numpy as np

from convoy.errors import ConvoyError, RelaySyntaxError, UnsupportedDtype
from convoy.relay.builder import numpy_dtype

MAGIC = 0xDD5E40F096B4A13F
_HEAD = struct.Struct("<QQiiiBBH")
_CPU = 1
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat"}
_MAX_DIMS = 32
_MOST_BYTES = 2**62


def decode_base64(text: str) -> np.ndarray:
    """Decode a tensor from base64.

    Raises:
        RelaySyntaxError: Not base64, or not a tensor.
    """
    try:
        raw = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as bad:
        raise RelaySyntaxError(f"a constant that is no base64 ({bad})") from None
    return decode(raw)


def decode(raw: bytes) -> np.ndarray:
    """Decode a tensor from all of `raw`."""
    array, end = decode_at(raw, 0)
    if end != len(raw):
        raise _bad(f"{len(raw) - end} bytes behind its data")
    return array


def decode_at(raw: bytes, start: int) -> tuple[np.ndarray, int]:
    """Decode the tensor at an offset; return it and the offset after it."""
    if len(raw) - start < _HEAD.size:
        raise _bad(f"{len(raw) - start} bytes")
    magic, _, _, _, ndim, code, bits, lanes = _HEAD.unpack_from(raw, start)
    if magic != MAGIC:
        raise _bad(f"magic number {magic:#x}")
    if not 0 <= ndim <= _MAX_DIMS:
        raise _bad(f"{ndim} dimensions")
    data_at = start + _HEAD.size + 8 * ndim + 8
    if len(raw) < data_at:
        raise _bad(f"{len(raw) - start} bytes")
    *shape, size = struct.unpack_from(f"<{ndim}qq", raw, start + _HEAD.size)
    dtype = _dtype(code, bits, lanes)
    if any(d < 0 for d in shape) or size != prod(shape) * dtype.itemsize:
        raise _bad(f"{size} bytes of data for shape {tuple(shape)} of {dtype}")
    if len(raw) < data_at + size:
        raise _bad(f"{len(raw) - data_at} bytes of data where {size} are announced")
    if prod(max(d, 1) for d in shape) * dtype.itemsize > _MOST_BYTES:
        raise _bad(f"shape {tuple(shape)}")  # of no element, and still too large for numpy
    array = np.frombuffer(raw, dtype, prod(shape), data_at)
    return array.reshape(shape).copy(), data_at + size


def _bad(got: str) -> ConvoyError:
    return RelaySyntaxError(f"a constant with {got}", "a whole tensor as TVM saves it")


def _dtype(code: int, bits: int, lanes: int) -> np.dtype:
    if lanes == 1 and (code, bits) in ((1, 1), (6, 8)):
        return np.dtype(bool)
    name = f"{_KINDS.get(code, f'code{code}_')}{bits}"
    if lanes == 1 and name in _SUPPORTED:
        return numpy_dtype(name)
    raise UnsupportedDtype(f"a constant of {name}x{lanes}", ", ".join(_SUPPORTED))


_SUPPORTED = (
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    "float16",
    "float32",
    "float64",
    "bfloat16",
)


def encode(array: np.ndarray) -> bytes:
    """Encode a tensor."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    name = array.dtype.name
    if name == "bfloat16":
        code, bits = 4, 16
    elif array.dtype.kind == "b":
        code, bits = 1, 1
    elif name in _SUPPORTED:
        code, bits = {"i": 0, "u": 1, "f": 2}[array.dtype.kind], 8 * array.dtype.itemsize
    else:
        raise UnsupportedDtype(f"a constant of {name}", ", ".join(_SUPPORTED))
    head = _HEAD.pack(MAGIC, 0, _CPU, 0, array.ndim, code, bits, 1)
    return head + struct.pack(f"<{array.ndim}qq", *array.shape, array.nbytes) + array.tobytes()


def encode_base64(array: np.ndarray) -> str:
    """Encode a tensor in base64."""
    return base64.b64encode(encode(array)).decode("ascii")
