"""Helpers of windows, blocks and regions: in `relay.nn`, `relay.image` and `relay.vision` too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay.ast import Call, Expr
from convoy.relay.op.call import as_tuple, call, sizes
from convoy.relay.op.call import padding as padded

# ---- relay.nn


def dilate(data: Expr, strides: Sequence[int], dilation_value: float = 0.0) -> Call:
    """Values with `strides - 1` others between them."""
    return call("nn.dilate", data, strides=tuple(strides), dilation_value=float(dilation_value))


def _pairs(value: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(v) for v in pair) for pair in value)


def space_to_batch_nd(
    data: Expr, block_shape: Sequence[int], paddings: Any, pad_value: float = 0
) -> Call:
    """Blocks of the axes behind the batch become batches."""
    return call(
        "nn.space_to_batch_nd", data, block_shape=tuple(block_shape), paddings=_pairs(paddings),
        pad_value=float(pad_value),
    )  # fmt: skip


def batch_to_space_nd(data: Expr, block_shape: Sequence[int], crops: Any) -> Call:
    """The inverse of space_to_batch_nd."""
    attrs = {"block_shape": tuple(block_shape), "crops": _pairs(crops)}
    return call("nn.batch_to_space_nd", data, **attrs)


def upsampling3d(
    data: Expr,
    scale_d: float = 1,
    scale_h: float = 1,
    scale_w: float = 1,
    layout: str = "NCDHW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "half_pixel",
) -> Call:
    """Three axes resized by factors."""
    return call(
        "nn.upsampling3d", data, scale_d=float(scale_d), scale_h=float(scale_h),
        scale_w=float(scale_w), layout=layout, method=method,
        coordinate_transformation_mode=coordinate_transformation_mode,
    )  # fmt: skip


def nll_loss(
    predictions: Expr,
    targets: Expr,
    weights: Expr,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> Call:
    """Negative log likelihood of log probabilities (n, c, ...)."""
    attrs = {"reduction": reduction, "ignore_index": ignore_index}
    return call("nn.nll_loss", predictions, targets, weights, **attrs)


# ---- relay.image and relay.vision


def crop_and_resize(
    data: Expr,
    boxes: Expr,
    box_indices: Expr,
    crop_size: Sequence[int],
    layout: str,
    method: str = "bilinear",
    extrapolation_value: float = 0,
    out_dtype: str | None = None,
) -> Call:
    """Regions of pictures, as fractions of their sizes, in one size."""
    return call(
        "image.crop_and_resize", data, boxes, box_indices, crop_size=tuple(crop_size),
        layout=layout, method=method, extrapolation_value=float(extrapolation_value),
        out_dtype=out_dtype,
    )  # fmt: skip


def dilation2d(
    data: Expr,
    weight: Expr,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilations: Any = (1, 1),
    data_layout: str = "NCHW",
    kernel_layout: str = "IHW",
    out_dtype: str = "",
) -> Call:
    """The greyscale dilation: the maximum of a window plus the weight."""
    return call(
        "image.dilation2d", data, weight, strides=sizes(strides, 2), padding=padded(padding, 2),
        dilations=sizes(dilations, 2), data_layout=data_layout, kernel_layout=kernel_layout,
        out_dtype=out_dtype,
    )  # fmt: skip


def roi_align(
    data: Expr,
    rois: Expr,
    pooled_size: Any,
    spatial_scale: float,
    sample_ratio: int = -1,
    layout: str = "NCHW",
    mode: str = "avg",
) -> Call:
    """Regions (n, 5) of batch index and corners, sampled into one size."""
    return call(
        "vision.roi_align", data, rois, pooled_size=sizes(pooled_size, 2),
        spatial_scale=float(spatial_scale), sample_ratio=sample_ratio, layout=layout, mode=mode,
    )  # fmt: skip


def roi_pool(
    data: Expr, rois: Expr, pooled_size: Any, spatial_scale: float, layout: str = "NCHW"
) -> Call:
    """Regions (n, 5) of batch index and corners, pooled into one size."""
    attrs = {"spatial_scale": float(spatial_scale), "layout": layout}
    return call("vision.roi_pool", data, rois, pooled_size=sizes(pooled_size, 2), **attrs)


# ---- relay


def sliding_window(
    data: Expr, axis: int, window_shape: Sequence[int], strides: Sequence[int]
) -> Call:
    """All windows over the axes from `axis` on."""
    attrs = {"window_shape": tuple(window_shape), "strides": tuple(strides)}
    return call("sliding_window", data, axis=axis, **attrs)


def reinterpret(data: Expr, dtype: str) -> Call:
    """The same bits as another type of the same width."""
    return call("reinterpret", data, dtype=dtype)


def invert_permutation(data: Expr) -> Call:
    """Where each index stands."""
    return call("invert_permutation", data)


def matrix_set_diag(
    data: Expr, diagonal: Expr, k: int | Sequence[int] = 0, align: str = "RIGHT_LEFT"
) -> Call:
    """Matrices with other diagonals `k`, or from k[0] to k[1]."""
    low, high = (k, k) if isinstance(k, int) else (k[0], k[-1])
    above, _, below = align.partition("_")
    attrs = {"k1": low, "k2": high, "super_diag_right_align": above == "RIGHT"}
    return call("matrix_set_diag", data, diagonal, **attrs, sub_diag_right_align=below == "RIGHT")


def unravel_index(indices: Expr, shape: Expr) -> Call:
    """Positions in a flat array as positions along each axis."""
    return call("unravel_index", indices, shape)


def searchsorted(
    sorted_sequence: Expr, values: Expr, right: bool = False, dtype: str = "int32"
) -> Call:
    """Where values would be inserted to keep the order."""
    return call("searchsorted", sorted_sequence, values, right=bool(right), dtype=dtype)


def adv_index(inputs: Any) -> Call:
    """`data[i, j, ...]` of a list of data and index tensors."""
    return call("adv_index", as_tuple(inputs))


def fixed_point_multiply(data: Expr, multiplier: int, shift: int) -> Call:
    """data * multiplier * 2 ** (shift - 31), rounded."""
    return call("fixed_point_multiply", data, multiplier=multiplier, shift=shift)
