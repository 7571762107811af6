"""Fourier transforms, as products with constant matrices of cosines and sines."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from convoy.relay.ast import Call, Expr, Tuple, TupleWrapper
from convoy.relay.ops.arguments import make_call
from convoy.relay.ops.creation import ones
from convoy.relay.ops.expansion_call import attrs_of, const, plain, type_of
from convoy.relay.ops.registry import builder, expansion, type_rule
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.types import Any as DynamicDim
from convoy.relay.types import Dim, TensorType, TupleType, Type


@builder("stft")
def stft(
    data: Expr,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Expr | None = None,
    normalized: bool = False,
    onesided: bool = True,
) -> Call:
    """Compute the Fourier transforms of overlapping windows.

    Args:
        data: (batch, length).
        n_fft: The size of the transform.
        hop_length: The distance of windows; None for n_fft / 4.
        win_length: The size of a window; None for n_fft.
        window: Factors (win_length,); None for ones.
        normalized: Divide by the square root of n_fft.
        onesided: Return the frequencies up to half of n_fft only.

    Returns:
        (batch, frequencies, windows, 2): the real and the imaginary parts.
    """
    attrs = {
        "n_fft": n_fft,
        "hop_length": n_fft // 4 if hop_length is None else hop_length,
        "win_length": n_fft if win_length is None else win_length,
        "normalized": bool(normalized),
        "onesided": bool(onesided),
    }
    window = ones([attrs["win_length"]], "int32") if window is None else window
    return make_call("stft", data, window, **attrs)


@type_rule("stft")
def infer_stft(call: Inputs) -> Type:
    call.count(2)
    data, size = call.tensor(0, 2), call.attrs.get_int("n_fft")
    call.tensor(1, 1)
    hop = call.attrs.get_int("hop_length")
    if size < 1 or hop < 1 or not 1 <= call.attrs.get_int("win_length") <= size:
        raise call.error(f"n_fft={size}, hop_length={hop}", "sizes over zero, a window in n_fft")
    length = data.shape[1]
    windows: Dim = (length - size) // hop + 1 if isinstance(length, int) else DynamicDim()
    rows = size // 2 + 1 if call.attrs["onesided"] else size
    return TensorType((data.shape[0], rows, windows, 2), data.dtype)


@expansion("stft")
def expand_stft(call: Call, args: Sequence[Expr]) -> Expr:
    attrs, type_ = attrs_of(call), call.checked_type
    assert isinstance(type_, TensorType)
    batch, rows, windows, _ = type_.concrete_shape
    size, width, dtype = attrs.get_int("n_fft"), attrs.get_int("win_length"), type_.dtype
    starts = np.arange(windows) * attrs.get_int("hop_length")
    places = const((starts[:, None] + np.arange(width)).reshape(-1), "int32")
    frames = plain("take", args[0], places, axis=1, mode="clip")
    frames = plain("reshape", frames, newshape=(batch * windows, width))
    frames = plain("multiply", frames, plain("cast", args[1], dtype=dtype))
    angle = 2 * math.pi / width * (np.outer(np.arange(rows), np.arange(width)) % width)
    scale = 1 / math.sqrt(size) if attrs["normalized"] else 1.0
    matrix = np.stack([np.cos(angle), -np.sin(angle)], axis=1).reshape(rows * 2, width) * scale
    found = plain("nn.dense", frames, const(matrix, dtype), units=None)
    found = plain("reshape", found, newshape=(batch, windows, rows, 2))
    return plain("transpose", found, axes=(0, 2, 1, 3))


@builder("dft")
def dft(re_data: Expr, im_data: Expr, inverse: bool | None = False) -> TupleWrapper:
    """Compute the Fourier transform along the last axis.

    Args:
        re_data, im_data: The real and the imaginary parts, of one shape.
        inverse: Compute the inverse transform, divided by the number of elements.

    Returns:
        The real and the imaginary parts.
    """
    return TupleWrapper(make_call("dft", re_data, im_data, inverse=int(bool(inverse))), 2)


@type_rule("dft")
def infer_dft(call: Inputs) -> Type:
    call.count(2)
    real = call.tensor(0)
    call.expect(1, real)
    if not real.shape:
        raise call.error("a scalar", "at least a vector")
    return TupleType([real, real])


@expansion("dft")
def expand_dft(call: Call, args: Sequence[Expr]) -> Expr:
    type_, inverse = type_of(call, 0), bool(attrs_of(call)["inverse"])
    shape, dtype = type_.concrete_shape, type_.dtype
    size = shape[-1]
    # The product is reduced first: large angles would lose digits.
    turns = np.outer(np.arange(size), np.arange(size)) % max(1, size)
    angle = 2 * math.pi / max(1, size) * turns * (1 if inverse else -1)
    scale = 1 / size if inverse else 1.0
    cosine, sine = const(np.cos(angle) * scale, dtype), const(np.sin(angle) * scale, dtype)
    real, imaginary = (plain("reshape", a, newshape=(-1, size)) for a in args)

    def times(data: Expr, matrix: Expr) -> Expr:
        return plain("nn.dense", data, matrix, units=None)

    results = (
        plain("subtract", times(real, cosine), times(imaginary, sine)),
        plain("add", times(real, sine), times(imaginary, cosine)),
    )
    return Tuple([plain("reshape", r, newshape=shape) for r in results])
