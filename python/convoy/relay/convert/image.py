"""Resizing of images."""

from __future__ import annotations

from tvm import relax, topi

from convoy.relay.convert.context import OpCall, RelaxExpr, converter


@converter("image.resize1d", "image.resize2d", "image.resize3d")
def resize(op: OpCall) -> RelaxExpr:
    attrs, rank = op.attrs, int(op.name[-2])
    roi = [float(r) for r in attrs["roi"] or (0.0,) * (2 * rank)]
    compute = {1: topi.image.resize1d, 2: topi.image.resize2d, 3: topi.image.resize3d}
    return op.te(
        compute[rank],
        op.args[0],
        roi,
        [int(s) for s in attrs["size"]],
        attrs["layout"],
        attrs["method"],
        attrs["coordinate_transformation_mode"],
        attrs["rounding_method"],
        attrs["cubic_alpha"],
        attrs["cubic_exclude"],
        attrs["extrapolation_value"],
        op.result.dtype,
    )


@converter("image.grid_sample")
def grid_sample(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    return relax.op.image.grid_sample(
        *op.args, attrs["method"], attrs["layout"], attrs["padding_mode"], attrs["align_corners"]
    )


@converter("image.affine_grid")
def affine_grid(op: OpCall) -> RelaxExpr:
    size = tuple(int(s) for s in op.attrs["target_shape"])
    return relax.op.image.affine_grid(op.args[0], size)
