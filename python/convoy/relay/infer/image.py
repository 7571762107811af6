"""Resizing of images."""

from __future__ import annotations

from convoy.relay.infer.rules import Inputs, rule
from convoy.relay.types import TensorType, Type

_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


@rule("image.resize1d", "image.resize2d", "image.resize3d")
def resize(call: Inputs) -> Type:
    call.count(1)
    spatial = _SPATIAL[int(call.name[-2])]
    layout = call.layout(call.attrs["layout"], "NC" + spatial)
    data = call.tensor(0, len(layout.parts))
    shape = list(data.shape)
    for axis, size in zip(spatial, call.positive("size", len(spatial)), strict=False):
        shape[layout.index(axis)] = size
    return TensorType(shape, call.out_dtype(data.dtype))


@rule("image.grid_sample")
def grid_sample(call: Inputs) -> Type:
    """data (n, c, h, w), grid (n, 2, oh, ow)."""
    call.count(2)
    if call.attrs["layout"] != "NCHW":
        raise call.error(f"layout='{call.attrs['layout']}'", "'NCHW'")
    data, grid = call.tensor(0, 4), call.tensor(1, 4)
    return TensorType((*data.shape[:2], *grid.shape[2:]), data.dtype)


@rule("image.affine_grid")
def affine_grid(call: Inputs) -> Type:
    """theta (n, 2, 3) to a grid (n, 2, h, w)."""
    call.count(1)
    theta = call.tensor(0, 3)
    return TensorType((theta.shape[0], 2, *call.positive("target_shape", 2)), theta.dtype)
