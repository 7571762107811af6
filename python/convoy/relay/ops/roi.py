"""Regions of interest, sampled or pooled to one size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay.ast import Call, Expr
from convoy.relay.lazy import topi
from convoy.relay.ops.arguments import make_call, sizes
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr, ints
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.types import TensorType, Type


@builder("image.crop_and_resize")
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
    """Crop boxes out of images and resize them.

    Args:
        data: Images, (n, c, h, w) in `layout`.
        boxes: (m, 4): y1, x1, y2, x2 as fractions of the image.
        box_indices: (m,): the image of each box.
        crop_size: (h, w) of the result.

    Returns:
        (m, c, h, w) in `layout`.
    """
    return make_call(
        "image.crop_and_resize", data, boxes, box_indices, crop_size=tuple(crop_size),
        layout=layout, method=method, extrapolation_value=float(extrapolation_value),
        out_dtype=out_dtype,
    )  # fmt: skip


@type_rule("image.crop_and_resize")
def infer_crop_and_resize(call: Inputs) -> Type:
    call.count(3)
    layout = call.layout(call.attrs["layout"], "NCHW")
    data, boxes = call.tensor(0, len(layout.parts)), call.tensor(1, 2)
    shape = list(data.shape)
    shape[layout.index("N")] = boxes.shape[0]
    for axis, size in zip("HW", call.positive("crop_size", 2), strict=True):
        shape[layout.index(axis)] = size
    return TensorType(shape, call.out_dtype(data.dtype))


@converter("image.crop_and_resize")
def convert_crop_and_resize(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    return op.te(
        topi.image.crop_and_resize,
        *op.args,
        ints(attrs["crop_size"]),
        attrs["layout"],
        attrs["method"],
        float(attrs["extrapolation_value"]),
        op.result.dtype,
    )


@builder("vision.roi_align")
def roi_align(
    data: Expr,
    rois: Expr,
    pooled_size: Any,
    spatial_scale: float,
    sample_ratio: int = -1,
    layout: str = "NCHW",
    mode: str = "avg",
) -> Call:
    """Sample regions at regular points (Mask R-CNN).

    Args:
        rois: (m, 5): batch index, x1, y1, x2, y2.
        pooled_size: (h, w) of the result.
        spatial_scale: The factor from coordinates of `rois` to those of the data.
        sample_ratio: Samples along each axis of a bin; -1 adapts to the region.
        mode: "avg" or "max".
    """
    return make_call(
        "vision.roi_align", data, rois, pooled_size=sizes(pooled_size, 2),
        spatial_scale=float(spatial_scale), sample_ratio=sample_ratio, layout=layout, mode=mode,
    )  # fmt: skip


@builder("vision.roi_pool")
def roi_pool(
    data: Expr, rois: Expr, pooled_size: Any, spatial_scale: float, layout: str = "NCHW"
) -> Call:
    """Pool regions by their maximum (Fast R-CNN); see `roi_align`."""
    attrs = {"spatial_scale": float(spatial_scale), "layout": layout}
    return make_call("vision.roi_pool", data, rois, pooled_size=sizes(pooled_size, 2), **attrs)


@type_rule("vision.roi_align", "vision.roi_pool")
def infer_roi(call: Inputs) -> Type:
    call.count(2)
    layout = call.layout(call.attrs["layout"], "NCHW")
    data, rois = call.tensor(0, 4), call.tensor(1, 2)
    height, width = call.positive("pooled_size", 2)
    channels = layout.to_axes(data.shape, "NCHW")[1]
    return TensorType(
        layout.from_axes((rois.shape[0], channels, height, width), "NCHW"), data.dtype
    )


@converter("vision.roi_align")
def convert_roi_align(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    compute = {
        "NCHW": topi.vision.roi_align_nchw,
        "NHWC": topi.vision.roi_align_nhwc,
    }
    if attrs["layout"] not in compute:
        raise op.unsupported(f"layout='{attrs['layout']}'", "NCHW or NHWC")
    return op.te(
        compute[attrs["layout"]],
        *op.args,
        ints(attrs["pooled_size"]),
        float(attrs["spatial_scale"]),
        attrs["mode"],
        int(attrs["sample_ratio"]),
    )


@converter("vision.roi_pool")
def convert_roi_pool(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    if attrs["layout"] != "NCHW":
        raise op.unsupported(f"layout='{attrs['layout']}'", "NCHW")
    size = ints(attrs["pooled_size"])
    return op.te(topi.vision.roi_pool_nchw, *op.args, size, float(attrs["spatial_scale"]))
