"""Convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import infer_shape, rank, squeeze, unsqueeze
from convoy.relay.frontend.pytorch.registry import Call, convert
from convoy.relay.frontend.windows import (
    adaptive_pool,
    avg_pool,
    conv,
    conv_transpose,
    lp_pool,
    max_pool,
    same_padding,
)


def spread(values: Sequence[int] | None, count: int, default: int) -> list[int]:
    """Return one value for each axis; a single one is for all, and none is the default."""
    if not values:
        return [default] * count
    return list(values) * count if len(values) == 1 else list(values)


def batched(data: Expr, axes: int) -> tuple[Expr, bool]:
    """Return (n, c, ...), and whether the batch axis had to be added."""
    alone = rank(data) == axes + 1
    return (unsqueeze(data, [0]), True) if alone else (data, False)


_CONVS = ("conv1d", "conv2d", "conv3d")
_TRANSPOSED = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")


@convert(*_CONVS, *_TRANSPOSED, "_convolution", "convolution", "_convolution_mode")
def convolution(call: Call) -> Expr:
    """Convert a convolution of any name and rank."""
    transposed = call.short in _TRANSPOSED or bool(call.get("transposed"))
    weight = call["weight"]
    axes = rank(weight) - 2
    data, alone = batched(call["input"], axes)
    strides = spread(call.ints("stride"), axes, 1)
    dilation = spread(call.ints("dilation"), axes, 1)
    if isinstance(call.get("padding"), str):
        padding = [0] * 2 * axes
        if call.get("padding") == "same":
            kernel = infer_shape(weight)[2:]
            extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
            padding = same_padding(infer_shape(data)[2:], extents, strides, True)
    else:
        padding = spread(call.ints("padding"), axes, 0) * 2
    groups = call.get("groups", 1)
    bias = call["bias"] if call.get("bias") is not None else None
    if transposed:
        more = spread(call.ints("output_padding"), axes, 0)
        result = conv_transpose(data, weight, bias, strides, padding, dilation, groups, more)
    else:
        result = conv(data, weight, bias, strides, padding, dilation, groups)
    return squeeze(result, [0]) if alone else result


def _pool(call: Call, axes: int) -> tuple[Expr, bool, dict[str, Any]]:
    data, alone = batched(call["self"], axes)
    kernel = spread(call.ints("kernel_size"), axes, 1)
    options = {
        "kernel": kernel,
        "strides": spread(call.ints("stride") or kernel, axes, 1),
        "padding": spread(call.ints("padding"), axes, 0) * 2,
        "dilation": spread(call.ints("dilation"), axes, 1),
        "ceil_mode": bool(call.get("ceil_mode")),
    }
    return data, alone, options


@convert("max_pool1d", "max_pool2d", "max_pool3d", "max_pool2d_with_indices",
         "max_pool3d_with_indices")  # fmt: skip
def convert_max_pool(call: Call) -> Any:
    """Take maxima; their indices have no counterpart (and are left out of the result)."""
    data, alone, options = _pool(call, int(call.short[8]))
    result = max_pool(data, **options)
    result = squeeze(result, [0]) if alone else result
    return [result, None] if call.short.endswith("indices") else result


@convert("avg_pool1d", "avg_pool2d", "avg_pool3d")
def convert_avg_pool(call: Call) -> Expr:
    if call.get("divisor_override"):
        raise call.error("divisor_override", "none", "Multiply the result of the pool instead")
    data, alone, options = _pool(call, int(call.short[8]))
    include = bool(call.get("count_include_pad", True))
    result = avg_pool(data, **options, count_include_pad=include)
    return squeeze(result, [0]) if alone else result


@convert("lp_pool1d", "lp_pool2d")
def convert_lp_pool(call: Call) -> Expr:
    data, alone, options = _pool(call, int(call.short[7]))
    result = lp_pool(data, call.get("norm_type"), **options)
    return squeeze(result, [0]) if alone else result


_ADAPTIVE = [f"adaptive_{kind}_pool{axes}d" for kind in ("avg", "max") for axes in (1, 2, 3)]


@convert(*_ADAPTIVE, "_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def adaptive(call: Call) -> Any:
    name = call.short.lstrip("_")
    axes = int(name[-2])
    spatial = infer_shape(call["self"])[-axes:]
    given = call.get("output_size")
    listed = list(given) if isinstance(given, Sequence) else [given]
    listed = listed * axes if len(listed) == 1 else listed
    sizes = [s if w is None else call.whole(w) for w, s in zip(listed, spatial, strict=True)]
    kind = name[9:12]
    result = adaptive_pool(call["self"], sizes, kind)
    return [result, None] if kind == "max" else result
