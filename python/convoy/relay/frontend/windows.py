"""Convolutions and pools of one, two or three spatial axes, data in (n, c, ...)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from convoy.errors import UnsupportedOp
from convoy.relay.ast import Expr
from convoy.relay.frontend.common import (
    const,
    dims,
    dtype_of,
    infer_shape,
    scalar_like,
    squeeze,
    unsqueeze,
)
from convoy.relay.op import nn
from convoy.relay.op import tensor as R

_AXES = {1: "W", 2: "HW", 3: "DHW"}
Sizes = Sequence[int]


def spatial_rank(expr: Expr, what: str) -> int:
    """Return the number of spatial axes of (n, c, ...).

    Raises:
        UnsupportedOp: None, or more than three.
    """
    found = len(dims(expr)) - 2
    if found not in _AXES:
        raise UnsupportedOp(f"{what} over {found} axes", "1, 2 or 3")
    return found


def conv(
    data: Expr,
    weight: Expr,
    bias: Expr | None,
    strides: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
    out_dtype: str = "",
) -> Expr:
    """Convolve.

    Args:
        data: (n, c, ...).
        weight: (o, c / groups, ...).
        bias: (o,) or None.
        padding: All before, then all after.
    """
    axes = spatial_rank(data, "a convolution")
    shape = infer_shape(weight)
    result = getattr(nn, f"conv{axes}d")(
        data,
        weight,
        strides=tuple(strides),
        padding=tuple(padding),
        dilation=tuple(dilation),
        groups=groups,
        channels=shape[0],
        kernel_size=shape[2:],
        data_layout="NC" + _AXES[axes],
        kernel_layout="OI" + _AXES[axes],
        out_dtype=out_dtype,
    )
    return result if bias is None else nn.bias_add(result, bias)


def conv_transpose(
    data: Expr,
    weight: Expr,
    bias: Expr | None,
    strides: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
    output_padding: Sizes,
) -> Expr:
    """Apply a transposed convolution.

    Args:
        data: (n, c, ...).
        weight: (c, o / groups, ...).
        bias: (o,) or None.
        padding: All before, then all after; negative values widen the output.
    """
    axes = spatial_rank(data, "a transposed convolution")
    shape = infer_shape(weight)
    if any(d != 1 for d in dilation):  # a dilated kernel is a larger one with zeros in it
        weight = nn.dilate(weight, [1, 1, *dilation])
        shape = infer_shape(weight)
    widened = [max(0, -p) for p in padding]
    kept = [max(0, p) for p in padding]
    out_pad = [min(o, s - 1) for o, s in zip(output_padding, strides, strict=True)]
    more = [o - k for o, k in zip(output_padding, out_pad, strict=True)]
    if any(more):
        widened = [*widened[:axes], *(w + m for w, m in zip(widened[axes:], more, strict=True))]
    result = getattr(nn, f"conv{axes}d_transpose")(
        data,
        weight,
        strides=tuple(strides),
        padding=tuple(kept),
        dilation=(1,) * axes,
        groups=groups,
        channels=shape[1] * groups,
        kernel_size=shape[2:],
        data_layout="NC" + _AXES[axes],
        kernel_layout="IO" + _AXES[axes],
        output_padding=tuple(out_pad),
    )
    if any(widened):
        result = pad(result, [0, 0, *widened[:axes]], [0, 0, *widened[axes:]])
    return result if bias is None else nn.bias_add(result, bias)


def same_padding(
    sizes: Sequence[int], extents: Sequence[int], strides: Sequence[int], upper: bool
) -> list[int]:
    """Return the padding with which the output has ceil(size / stride) elements."""
    before, after = [], []
    for size, extent, stride in zip(sizes, extents, strides, strict=True):
        total = max(0, (-(-size // stride) - 1) * stride + extent - size)
        small, large = total // 2, total - total // 2
        before.append(small if upper else large)
        after.append(large if upper else small)
    return before + after


def pad(data: Expr, before: Sizes, after: Sizes, value: float = 0, mode: str = "constant") -> Expr:
    """Pad every axis; negative widths crop.

    Args:
        before, after: Widths by axis.
        value: What to pad with, in mode "constant".
        mode: "constant", "edge" or "reflect".
    """
    pairs = list(zip(before, after, strict=True))
    if any(b < 0 or a < 0 for b, a in pairs):
        shape = infer_shape(data)
        begin = [max(0, -b) for b, _ in pairs]
        end = [s - max(0, -a) for s, (_, a) in zip(shape, pairs, strict=True)]
        data = R.strided_slice(data, begin=begin, end=end)
        pairs = [(max(0, b), max(0, a)) for b, a in pairs]
    if not any(b or a for b, a in pairs):
        return data
    if mode == "constant":
        return nn.pad(data, pairs, scalar_like(value, data))
    return nn.pad(data, pairs, pad_mode=mode)


def _tail(
    data: Expr, kernel: Sizes, strides: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> list[int]:
    """Return the padding at each end with that of a last, partial window under `ceil_mode`.

    A window that would begin in the padding at the end is left out, as PyTorch and ONNX do.
    """
    axes = len(kernel)
    after = list(padding[axes:])
    if not ceil_mode:
        return after
    sizes = infer_shape(data)[2:]
    for i, size in enumerate(sizes):
        extent = (kernel[i] - 1) * dilation[i] + 1
        free = size + padding[i] + after[i] - extent
        count = -(-free // strides[i]) + 1
        if (count - 1) * strides[i] >= size + padding[i]:
            count -= 1
        after[i] += max(0, (count - 1) * strides[i] - free)
    return after


def max_pool(
    data: Expr, kernel: Sizes, strides: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> Expr:
    """Take the maximum of windows; padding does not count.

    Args:
        data: (n, c, ...).
        padding: All before, then all after.
    """
    axes = spatial_rank(data, "a pool")
    after = _tail(data, kernel, strides, padding, dilation, ceil_mode)
    return getattr(nn, f"max_pool{axes}d")(
        data,
        pool_size=tuple(kernel),
        strides=tuple(strides),
        dilation=tuple(dilation),
        padding=(*padding[:axes], *after),
        layout="NC" + _AXES[axes],
    )


def avg_pool(
    data: Expr,
    kernel: Sizes,
    strides: Sizes,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
) -> Expr:
    """Average windows.

    Args:
        data: (n, c, ...).
        padding: All before, then all after.
        count_include_pad: Whether padding counts as zeros; what `ceil_mode` adds never does.
    """
    axes = spatial_rank(data, "a pool")
    after = _tail(data, kernel, strides, padding, dilation, ceil_mode)
    before = list(padding[:axes])
    if count_include_pad and after != list(padding[axes:]):
        data = pad(data, [0, 0, *before], [0, 0, *padding[axes:]])
        after = [a - p for a, p in zip(after, padding[axes:], strict=True)]
        before, count_include_pad = [0] * axes, False
    return getattr(nn, f"avg_pool{axes}d")(
        data,
        pool_size=tuple(kernel),
        strides=tuple(strides),
        dilation=tuple(dilation),
        padding=(*before, *after),
        layout="NC" + _AXES[axes],
        count_include_pad=count_include_pad,
    )


def global_pool(data: Expr, kind: str) -> Expr:
    """Take the mean ("avg") or the maximum ("max") of all spatial axes, which stay as 1."""
    axes = len(dims(data)) - 2
    if axes == 2:
        return getattr(nn, f"global_{kind}_pool2d")(data)
    reduce = {"avg": R.mean, "max": R.max}[kind]
    return reduce(data, axis=tuple(range(2, axes + 2)), keepdims=True)


def adaptive_pool(data: Expr, sizes: Sizes, kind: str) -> Expr:
    """Pool to given sizes of the spatial axes, the last ones; the batch may be left out."""
    axes = len(sizes)
    if len(dims(data)) == axes + 1:
        return squeeze(adaptive_pool(unsqueeze(data, [0]), sizes, kind), [0])
    if all(s == 1 for s in sizes):
        return global_pool(data, kind)
    return getattr(nn, f"adaptive_{kind}_pool{axes}d")(
        data, output_size=tuple(sizes), layout="NC" + _AXES[axes]
    )


def lp_pool(data: Expr, p: float, kernel: Sizes, strides: Sizes, padding: Sizes, dilation: Sizes,
            ceil_mode: bool) -> Expr:  # fmt: skip
    """Take the p-norm of windows: (sum of |x|^p)^(1/p)."""
    power = R.power(R.abs(data), scalar_like(p, data))
    count = float(np.prod(kernel))
    after = _tail(power, kernel, strides, padding, dilation, ceil_mode)
    axes = len(kernel)
    mean = avg_pool(power, kernel, strides, [*padding[:axes], *after], dilation, False, True)
    total = R.multiply(mean, const(np.asarray(count, dtype_of(data))))
    return R.power(total, scalar_like(1 / p, data))
