"""Resizing and sampling images."""

from __future__ import annotations

from typing import Any

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import dims, infer_shape, rank, transpose
from convoy.relay.frontend.pytorch.registry import Call, convert
from convoy.relay.frontend.resampling import Resize, resize
from convoy.relay.op import image

_MODES = {"linear": "linear", "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}


def _factors(call: Call, axes: int) -> list[float] | None:
    """Return the scales that are given, of whichever overload."""
    listed = call.get("scale_factors")
    if listed is not None:
        return [float(s) for s in listed]
    names = {1: ["scales"], 2: ["scales_h", "scales_w"], 3: ["scales_d", "scales_h", "scales_w"]}
    found = [call.get(n) for n in names[axes]]
    return [float(f) for f in found] if all(f is not None for f in found) else None


_NAMES = [
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "upsample_linear1d",
    "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d",
    "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
]  # fmt: skip


@convert(*_NAMES)
def upsample(call: Call) -> Expr:
    """Resize the spatial axes to a size, or by factors."""
    data = call["self" if "self" in call.args else "input"]
    axes = rank(data) - 2
    shape = infer_shape(data)
    scales = _factors(call, axes)
    sizes = call.ints("output_size")
    if sizes is None:
        assert scales is not None
        sizes = [int(s * f) for s, f in zip(shape[2:], scales, strict=True)]
    places = range(2, 2 + axes)
    factors = dict(zip(places, scales, strict=True)) if scales is not None else {}
    new = dict(zip(places, sizes, strict=True))
    if "nearest" in call.short:
        exact = "exact" in call.short
        coordinates = "half_pixel" if exact else "asymmetric"
        rounding = "round_prefer_ceil" if exact else "floor"
        return resize(data, Resize(new, factors, "nearest", coordinates, rounding))
    kind = next(mode for name, mode in _MODES.items() if name in call.short)
    coordinates = "half_pixel"
    if call.get("align_corners"):
        coordinates, factors = "align_corners", {}  # of sizes, whatever the scales
    smooth = call.short.endswith("aa")
    cubic = -0.5 if smooth else -0.75
    return resize(
        data, Resize(new, factors, kind, coordinates, cubic=cubic, exclude_outside=smooth,
                     antialias=smooth),
    )  # fmt: skip


@convert("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sample(call: Call) -> Expr:
    data, grid = call["input"], call["grid"]
    last = rank(grid) - 1
    methods = ["bilinear", "nearest", "bicubic"]
    borders = ["zeros", "border", "reflection"]
    return image.grid_sample(
        data,
        transpose(grid, (0, last, *range(1, last))),
        method=methods[call.get("interpolation_mode")],
        layout="NCHW" if rank(data) == 4 else "NCDHW",
        padding_mode=borders[call.get("padding_mode")],
        align_corners=bool(call.get("align_corners")),
    )


@convert("affine_grid_generator")
def affine_grid(call: Call) -> Any:
    size = call.ints("size") or []
    if len(size) != 4 or not call.get("align_corners"):
        raise call.error("without align_corners, or not of images", "images with align_corners")
    grid = image.affine_grid(call["theta"], tuple(size[2:]))
    assert len(dims(grid)) == 4
    return transpose(grid, (0, 2, 3, 1))
