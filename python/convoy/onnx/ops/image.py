"""Resizing and sampling of images."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..call import Call, Value, converter
from .interpolation import Axis, weights

#: Elements that a result takes part of before an axis is resized by a matrix product.
_MOST_TAPS = 8


@converter("ImageScaler")
def image_scaler(call: Call) -> Value:
    """x * scale, and a bias for each channel."""
    scaled = call.do("Mul", call.value(0), call.const(call.attrs.get("scale", 1.0)))
    return call.do("Add", scaled, call.const(call.attrs["bias"]).reshape(-1, 1, 1))


@converter("Upsample")
def upsample(call: Call) -> Value:
    scales = call.attrs.get("scales")
    if "height_scale" in call.attrs:  # before opset 7
        scales = (1, 1, call.attrs["height_scale"], call.attrs["width_scale"])
    found = call.constant(1, "scales") if scales is None else np.array(scales, "float32")
    mode = str(call.attrs.get("mode", "nearest"))
    return call.do("Resize", call.value(0), None, found, mode=mode,
                   coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip


@converter("Resize")
def resize(call: Call) -> Value:
    """Each axis for itself: every result is a weighted sum of a few elements."""
    attrs = dict(call.attrs)
    roi: np.ndarray | None = None
    given_sizes: np.ndarray | None = None
    if call.version < 11:
        given_scales: np.ndarray | None = call.constant(1, "scales")
        attrs["coordinate_transformation_mode"], attrs["nearest_mode"] = "asymmetric", "by_scale"
    else:
        if attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
            roi = call.constant(1, "region")
        given_scales = call.constant(2, "scales") if call.has(2) else None
        given_sizes = call.constant(3, "sizes") if call.has(3) else None
        if given_scales is not None and not given_scales.size:
            given_scales = None
    sizes, rank = call.shape(), call.rank()
    axes = [a % rank for a in attrs.get("axes", range(rank))]
    if given_sizes is not None and given_sizes.size:
        out, scales = _from_sizes(sizes, axes, given_sizes, attrs)
    elif given_scales is not None:
        scales = [float(s) for s in given_scales]
        out = [
            math.floor(np.float32(sizes[a]) * np.float32(s))
            for a, s in zip(axes, scales, strict=True)
        ]
    else:
        raise call.unsupported("without scales or sizes")
    if roi is None and out == [sizes[a] for a in axes]:
        return call.inputs[0]
    if (found := _by_tvm(call, axes, out, scales, attrs)) is not None:
        return found
    value = call.value(0)
    dtype = call.dtype()
    working = dtype if dtype.startswith("float") else "float32"
    mode = attrs.get("mode", "nearest")
    if mode != "nearest":
        value = call.cast(value, working)
    outside = np.zeros((), bool)
    for i, axis in enumerate(axes):
        crop = (0.0, 1.0) if roi is None else (float(roi[i]), float(roi[len(axes) + i]))
        if out[i] == sizes[axis] and scales[i] == 1 and crop == (0.0, 1.0):
            continue
        how = Axis(sizes[axis], out[i], scales[i], crop, attrs)
        matrix, beyond = weights(how)
        value = _along(call, value, axis, matrix)
        shape = [-1 if k == axis else 1 for k in range(rank)]
        outside = outside | beyond.reshape(shape)
    if outside.any():
        fill = np.array(attrs.get("extrapolation_value", 0.0)).astype(call.do_dtype(value))
        value = call.do("Where", np.asarray(outside), fill, value)
    if mode != "nearest" and not dtype.startswith("float"):
        value = call.do("Round", value) if dtype != "bfloat16" else value
    return call.cast(value, dtype)


def _from_sizes(
    sizes: Sequence[int], axes: list[int], wanted: np.ndarray, attrs: dict[str, Any]
) -> tuple[list[int], list[float]]:
    """Sizes and scales where sizes are given; a policy may keep the aspect ratio."""
    scales = [int(w) / sizes[a] for a, w in zip(axes, wanted, strict=True)]
    policy = attrs.get("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return [int(w) for w in wanted], scales
    scale = min(scales) if policy == "not_larger" else max(scales)
    return [math.floor(scale * sizes[a] + 0.5) for a in axes], [scale] * len(axes)


def _by_tvm(
    call: Call, axes: list[int], out: list[int], scales: list[float], attrs: dict[str, Any]
) -> Value | None:
    """TVM's operator where images grow by whole factors, which is what most networks do."""
    if call.rank() != 4 or not call.dtype().startswith("float"):
        return None
    factor = dict.fromkeys(range(4), 1.0)
    target = list(call.shape())
    for axis, size, scale in zip(axes, out, scales, strict=True):
        factor[axis], target[axis] = scale, size
    if factor[0] != 1 or factor[1] != 1:
        return None
    if any(f < 1 or f != int(f) for f in factor.values()) or factor[2] == factor[3] == 1:
        return None
    mode, where = (
        attrs.get("mode", "nearest"),
        attrs.get("coordinate_transformation_mode", "half_pixel"),
    )
    if mode == "nearest":
        if where != "asymmetric" or attrs.get("nearest_mode") not in ("floor", "by_scale"):
            return None
        method, rounding = "nearest_neighbor", "floor"
    elif mode == "linear" and where in ("half_pixel", "asymmetric", "align_corners"):
        method, rounding = "linear", ""
    else:
        return None
    return call.make(
        "image.resize2d", call.x(), tuple(target[2:]), layout="NCHW", method=method,
        coordinate_transformation_mode=where, rounding_method=rounding,
    )  # fmt: skip


def _along(call: Call, value: Value, axis: int, matrix: np.ndarray) -> Value:
    """Apply a matrix, (out, in), along one axis."""
    taps = int((matrix != 0).sum(1).max(initial=1))
    rank = call.rank()
    dtype = call.do_dtype(value)
    order = np.argsort(matrix == 0, axis=1, kind="stable")[:, :taps]  # the elements that count
    share = np.take_along_axis(matrix, order, 1)
    if taps == 1 and (share == 1).all():
        return call.do("Gather", value, order[:, 0].copy(), axis=axis)
    if taps > _MOST_TAPS:
        perm = [i for i in range(rank) if i != axis] + [axis]
        value = call.do("Transpose", value, perm=perm)
        value = call.do("MatMul", value, np.ascontiguousarray(matrix.T.astype(dtype)))
        return call.do("Transpose", value, perm=[perm.index(i) for i in range(rank)])
    total: Value = None
    for tap in range(taps):
        part = call.do("Gather", value, order[:, tap].copy(), axis=axis)
        factor = share[:, tap].astype(dtype).reshape([-1 if i == axis else 1 for i in range(rank)])
        part = call.do("Mul", part, factor)
        total = part if total is None else call.do("Add", total, part)
    return total


# ---- sampling at coordinates


@converter("GridSample")
def grid_sample(call: Call) -> Value:
    """Sample (n, c, *sizes) at coordinates in [-1, 1], (n, *out, axes), the last axis first."""
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(
        call.attrs.get("mode", "linear"), call.attrs.get("mode", "linear")
    )
    padding = call.attrs.get("padding_mode", "zeros")
    corners = bool(call.attrs.get("align_corners", 0))
    n, c, *sizes = call.shape()
    rank, out = len(sizes), call.shape(1)[1:-1]
    points = math.prod(out)
    grid = call.reshape(call.value(1), (n, points, rank))
    dtype = call.const(0, 1).dtype
    places = []
    for axis, size in enumerate(sizes):
        at = call.do("Gather", grid, np.array(rank - 1 - axis), axis=2)
        at = call.do("Add", at, np.array(1, dtype))
        if corners:
            at = call.do("Mul", at, np.array((size - 1) / 2, dtype))
        else:
            at = call.do("Sub", call.do("Mul", at, np.array(size / 2, dtype)), np.array(0.5, dtype))
        if mode != "cubic":
            at = _padded_place(call, at, size, padding, corners, dtype)
        places.append(at)
    rows = call.do("Transpose", call.value(0), perm=(0, *range(2, rank + 2), 1))
    rows = call.reshape(rows, (n * math.prod(sizes), c))
    taps = {"nearest": _nearest_taps, "linear": _linear_taps, "cubic": _cubic_taps}[mode]
    each = [taps(call, at, dtype) for at in places]
    total: Value = None
    for corner in itertools.product(*each):
        index: Value = None
        share: Value = None
        for axis, (whole, part) in enumerate(corner):
            size = sizes[axis]
            if mode == "cubic":
                whole = _padded_place(call, whole, size, padding, corners, dtype)
                whole = call.do("Round", whole)
            if padding == "zeros":
                above = call.do("GreaterOrEqual", whole, np.array(0, dtype))
                below = call.do("LessOrEqual", whole, np.array(size - 1, dtype))
                inside = call.do("And", above, below)
                kept = call.do("Where", inside, np.array(1, dtype), np.array(0, dtype))
                part = kept if part is None else call.do("Mul", part, kept)
            whole = call.do("Clip", whole, np.array(0, dtype), np.array(size - 1, dtype))
            whole = call.do("Cast", whole, to=7)
            if index is not None:
                whole = call.do("Add", call.do("Mul", index, np.array(size)), whole)
            index = whole
            if part is not None:
                share = part if share is None else call.do("Mul", share, part)
        first = np.arange(n).reshape(n, 1) * math.prod(sizes)
        value = call.do("Gather", rows, call.do("Add", index, first), axis=0)
        if share is not None:
            share = call.cast(call.reshape(share, (n, points, 1)), call.dtype())
            value = call.do("Mul", value, share)
        total = value if total is None else call.do("Add", total, value)
    return call.reshape(call.do("Transpose", total, perm=(0, 2, 1)), (n, c, *out))


def _padded_place(
    call: Call, at: Value, size: int, padding: str, corners: bool, dtype: Any
) -> Value:
    """A coordinate as the padding has it: clamped, reflected at the borders, or as it is."""
    if padding == "zeros":
        return at
    if padding == "reflection":
        low, span = (0.0, size - 1) if corners else (-0.5, size)
        if span == 0:
            return call.do("Mul", at, np.array(0, dtype))
        away = call.do("Abs", call.do("Sub", at, np.array(low, dtype)))
        turns = call.do("Floor", call.do("Div", away, np.array(span, dtype)))
        rest = call.do("Sub", away, call.do("Mul", turns, np.array(span, dtype)))
        half = call.do("Floor", call.do("Div", turns, np.array(2, dtype)))
        odd = call.do("Sub", turns, call.do("Mul", half, np.array(2, dtype)))
        back = call.do("Sub", np.array(span, dtype), rest)
        even = call.do("Equal", odd, np.array(0, dtype))
        at = call.do("Add", call.do("Where", even, rest, back), np.array(low, dtype))
    return call.do("Clip", at, np.array(0, dtype), np.array(size - 1, dtype))


def _nearest_taps(call: Call, at: Value, dtype: Any) -> list[tuple[Value, Value]]:
    return [(call.do("Round", at), None)]


def _linear_taps(call: Call, at: Value, dtype: Any) -> list[tuple[Value, Value]]:
    whole = call.do("Floor", at)
    upper = call.do("Sub", at, whole)
    one = np.array(1, dtype)
    return [(whole, call.do("Sub", one, upper)), (call.do("Add", whole, one), upper)]


def _cubic_taps(call: Call, at: Value, dtype: Any) -> list[tuple[Value, Value]]:
    whole = call.do("Floor", at)
    t, a = call.do("Sub", at, whole), -0.75

    def polynomial(x: Value, *factors: float) -> Value:
        value: Value = np.array(factors[0], dtype)
        for factor in factors[1:]:
            value = call.do("Add", call.do("Mul", value, x), np.array(factor, dtype))
        return value

    near: Callable[[Value], Value] = lambda x: polynomial(x, a + 2, -(a + 3), 0, 1)  # noqa: E731
    far: Callable[[Value], Value] = lambda x: polynomial(x, a, -5 * a, 8 * a, -4 * a)  # noqa: E731
    one, two = np.array(1, dtype), np.array(2, dtype)
    return [
        (call.do("Sub", whole, one), far(call.do("Add", t, one))),
        (whole, near(t)),
        (call.do("Add", whole, one), near(call.do("Sub", one, t))),
        (call.do("Add", whole, two), far(call.do("Sub", two, t))),
    ]


@converter("AffineGrid")
def affine_grid(call: Call) -> Value:
    """Coordinates of an affine transform, (n, axes, axes + 1), for :func:`grid_sample`."""
    n, _, *sizes = (int(d) for d in call.constant(1, "size"))
    rank, corners = len(sizes), bool(call.attrs.get("align_corners", 0))
    lines = [
        np.linspace(-1, 1, d) if corners and d > 1 else (np.arange(d) * 2 + 1) / d - 1
        for d in sizes
    ]
    if corners:
        lines = [np.full(1, -1.0) if d == 1 else x for d, x in zip(sizes, lines, strict=True)]
    mesh = np.meshgrid(*lines, indexing="ij")
    base = np.stack([*reversed(mesh), np.ones(sizes)], -1).reshape(1, -1, rank + 1)
    theta = call.do("Transpose", call.value(0), perm=(0, 2, 1))
    result = call.do("MatMul", base.astype(call.const(0).dtype), theta)
    return call.reshape(result, (n, *sizes, rank))
