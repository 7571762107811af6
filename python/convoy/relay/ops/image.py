"""Resizing and sampling images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.errors import UnsupportedOp
from convoy.relay.ast import Call, Expr
from convoy.relay.builder import const
from convoy.relay.layout import layout
from convoy.relay.lazy import relax, topi
from convoy.relay.ops.arguments import Sizes, known, listed, make_call
from convoy.relay.ops.layouts import over_plain
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.ops.window import SPATIAL, rank_of
from convoy.relay.shapes import computed
from convoy.relay.types import Any as DynamicDim
from convoy.relay.types import Dim, TensorType, Type


def _resize(rank: int) -> None:
    def resize(
        data: Expr,
        size: Sizes,
        roi: Sequence[float] | Expr | None = None,
        layout: str = "NC" + SPATIAL[rank],
        method: str = "linear",
        coordinate_transformation_mode: str = "half_pixel",
        rounding_method: str = "",
        cubic_alpha: float = -0.5,
        cubic_exclude: int = 0,
        extrapolation_value: float = 0.0,
        out_dtype: str | None = None,
    ) -> Call:
        size, roi = known(size), (0.0,) * (2 * rank) if roi is None else known(roi)
        attrs = {
            "layout": layout,
            "method": method,
            "coordinate_transformation_mode": coordinate_transformation_mode,
            "rounding_method": rounding_method,
            "cubic_alpha": cubic_alpha,
            "cubic_exclude": cubic_exclude,
            "extrapolation_value": extrapolation_value,
            "out_dtype": out_dtype,
        }
        if not isinstance(size, Expr) and not isinstance(roi, Expr):
            attrs["size"] = tuple(int(s) if isinstance(s, float) else s for s in listed(size))
            attrs["roi"] = listed(roi)
            return make_call(f"image.resize{rank}d", data, **attrs)
        if rank != 2:
            raise UnsupportedOp(f"image.resize{rank}d with a size that is computed", "a constant")
        size = size if isinstance(size, Expr) else const(list(listed(size)), "int64")
        roi = roi if isinstance(roi, Expr) else const(list(listed(roi)), "float32")
        return make_call("dyn.image.resize2d", data, size, roi, size=None, roi=None, **attrs)

    resize.__name__ = resize.__qualname__ = f"resize{rank}d"
    resize.__doc__ = f"Resize {rank} axes to `size`; `method` is nearest_neighbor, linear or cubic."
    builder(f"image.resize{rank}d")(resize)


for _rank in SPATIAL:
    _resize(_rank)


@type_rule("image.resize1d", "image.resize2d", "image.resize3d")
def infer_resize(call: Inputs) -> Type:
    call.count(1)
    spatial = SPATIAL[rank_of(call.name)]
    layout = call.layout(call.attrs["layout"], "NC" + spatial)
    data = call.tensor(0, len(layout.parts))
    shape = list(data.shape)
    for axis, size in zip(spatial, call.sizes("size", len(spatial)), strict=False):
        shape[layout.index(axis)] = size
    return TensorType(shape, call.out_dtype(data.dtype))


@converter("image.resize1d", "image.resize2d", "image.resize3d")
@over_plain
def convert_resize(op: OpCall) -> RelaxExpr:
    attrs, rank = op.attrs, rank_of(op.name)
    roi = [float(r) for r in attrs["roi"] or (0.0,) * (2 * rank)]
    rounding = attrs["rounding_method"]
    if not rounding and attrs["coordinate_transformation_mode"] == "align_corners":
        rounding = "round"
    if rounding == "round":  # halves up, as in TVM 0.18; today's "round" takes them to even
        rounding = "round_prefer_ceil"
    return op.te(
        getattr(topi.image, f"resize{rank}d"),
        op.args[0],
        roi,
        [int(s) for s in attrs["size"]],
        attrs["layout"],
        attrs["method"],
        attrs["coordinate_transformation_mode"],
        rounding,
        attrs["cubic_alpha"],
        attrs["cubic_exclude"],
        attrs["extrapolation_value"],
        op.result.dtype,
    )


@builder("nn.upsampling")
def upsampling(
    data: Expr,
    scale_h: float | Expr = 1,
    scale_w: float | Expr = 1,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
) -> Call:
    """Resize h and w by factors.

    Args:
        scale_h, scale_w: Factors, which may be computed.
        method: "nearest_neighbor", "bilinear" or "bicubic".
        align_corners: Align the centers of corner elements; only interpolation heeds it.
    """
    attrs = {"layout": layout, "method": method, "align_corners": align_corners}
    return _scaled("nn.upsampling", data, {"scale_h": scale_h, "scale_w": scale_w}, attrs)


def _scaled(name: str, data: Expr, scales: dict[str, Any], attrs: dict[str, Any]) -> Call:
    """Make a call with scales as attributes, or as arguments where one of them is computed."""
    scales = {field: known(scale) for field, scale in scales.items()}
    if not any(isinstance(scale, Expr) for scale in scales.values()):
        return make_call(name, data, **scales, **attrs)
    args = [s if isinstance(s, Expr) else const(s, "float64") for s in scales.values()]
    return make_call(f"dyn.{name}", data, *args, **dict.fromkeys(scales, 0.0), **attrs)


@type_rule("nn.upsampling")
def infer_upsampling(call: Inputs) -> Type:
    call.count(1)
    layout = call.layout(call.attrs["layout"], "NCHW")
    data = call.tensor(0, len(layout.parts))
    shape = list(data.shape)
    for axis, scale in (("H", call.attrs["scale_h"]), ("W", call.attrs["scale_w"])):
        size = shape[layout.index(axis)]
        if not 0 < scale < 1e6:
            raise call.error(f"scale_{axis.lower()}={scale}", "a scale over zero")
        # TVM rounds half to even.
        shape[layout.index(axis)] = _scaled_size(size, scale)
    return TensorType(shape, data.dtype)


def _scaled_size(size: Dim, scale: float) -> Dim:
    """Multiply a size; a fraction of an unknown size is unknown."""
    if isinstance(size, int):
        return round(size * scale)
    whole = int(scale)
    return computed(lambda n: n * whole, size) if whole == scale else DynamicDim()


@converter("nn.upsampling")
@over_plain
def convert_upsampling(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    found = layout(attrs["layout"], "NCHW")
    shape = op.result.shape
    size = (shape[found.index("H")], shape[found.index("W")])
    if not all(isinstance(s, int) for s in size):
        op.result_shape()  # raises
    method = {"nearest_neighbor": "nearest_neighbor", "bilinear": "linear", "bicubic": "cubic"}
    if attrs["method"] not in method:
        raise op.unsupported(f"method='{attrs['method']}'", ", ".join(method))
    nearest = attrs["method"] == "nearest_neighbor"
    mode = "align_corners" if attrs["align_corners"] and not nearest else "asymmetric"
    return relax.op.image.resize2d(
        op.args[0],
        size,
        layout=attrs["layout"],
        method=method[attrs["method"]],
        coordinate_transformation_mode=mode,
        rounding_method="floor" if nearest else "round",
        cubic_alpha=-0.5,
    )


@builder("nn.upsampling3d")
def upsampling3d(
    data: Expr,
    scale_d: float | Expr = 1,
    scale_h: float | Expr = 1,
    scale_w: float | Expr = 1,
    layout: str = "NCDHW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "half_pixel",
) -> Call:
    """Resize d, h and w by factors.

    Args:
        scale_d, scale_h, scale_w: Factors, which may be computed.
        method: "nearest_neighbor" or "trilinear".
    """
    attrs = {
        "layout": layout,
        "method": method,
        "coordinate_transformation_mode": coordinate_transformation_mode,
    }
    scales = {"scale_d": scale_d, "scale_h": scale_h, "scale_w": scale_w}
    return _scaled("nn.upsampling3d", data, scales, attrs)


@type_rule("nn.upsampling3d")
def infer_upsampling3d(call: Inputs) -> Type:
    call.count(1)
    layout = call.layout(call.attrs["layout"], "NCDHW")
    data = call.tensor(0, len(layout.parts))
    shape = list(data.shape)
    for axis in "DHW":
        scale, i = call.attrs[f"scale_{axis.lower()}"], layout.index(axis)
        if not 0 < scale < 1e6:
            raise call.error(f"scale_{axis.lower()}={scale}", "a number over zero")
        size = shape[i]
        shape[i] = _scaled_size(size, scale)
    return TensorType(shape, data.dtype)


@converter("nn.upsampling3d")
@over_plain
def convert_upsampling3d(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    found, shape = layout(attrs["layout"], "NCDHW"), op.result_shape()
    methods = {"nearest_neighbor": "nearest_neighbor", "trilinear": "linear"}
    if attrs["method"] not in methods:
        raise op.unsupported(f"method='{attrs['method']}'", ", ".join(methods))
    nearest = attrs["method"] == "nearest_neighbor"
    return op.te(
        topi.image.resize3d,
        op.args[0],
        [0.0] * 6,
        [shape[found.index(a)] for a in "DHW"],
        attrs["layout"],
        methods[attrs["method"]],
        "asymmetric" if nearest else attrs["coordinate_transformation_mode"],
        "floor" if nearest else "round",
    )


@builder("image.grid_sample")
def grid_sample(
    data: Expr,
    grid: Expr,
    method: str = "bilinear",
    layout: str = "NCHW",
    padding_mode: str = "zeros",
    align_corners: bool = True,
) -> Call:
    """Sample at coordinates in [-1, 1].

    Args:
        data: (n, c, h, w), or (n, c, d, h, w).
        grid: (n, 2, oh, ow): x, then y; or (n, 3, od, oh, ow): x, y, then z.
        layout: "NCHW" or "NCDHW".

    Returns:
        (n, c, oh, ow) or (n, c, od, oh, ow).
    """
    attrs = {"method": method, "layout": layout, "padding_mode": padding_mode}
    return make_call("image.grid_sample", data, grid, align_corners=align_corners, **attrs)


@type_rule("image.grid_sample")
def infer_grid_sample(call: Inputs) -> Type:
    call.count(2)
    if call.attrs["layout"] not in ("NCHW", "NCDHW"):
        raise call.error(f"layout='{call.attrs['layout']}'", "'NCHW' or 'NCDHW'")
    ndim = len(call.attrs["layout"])
    data, grid = call.tensor(0, ndim), call.tensor(1, ndim)
    return TensorType((*data.shape[:2], *grid.shape[2:]), data.dtype)


@converter("image.grid_sample")
def convert_grid_sample(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    if attrs["layout"] == "NCDHW":
        options = (attrs["method"], attrs["layout"], attrs["padding_mode"], attrs["align_corners"])
        return op.te(topi.image.grid_sample, *op.args, *options)
    return relax.op.image.grid_sample(
        *op.args, attrs["method"], attrs["layout"], attrs["padding_mode"], attrs["align_corners"]
    )


@builder("image.affine_grid")
def affine_grid(data: Expr, target_shape: Sequence[int]) -> Call:
    """Make the grid of an affine transform for `grid_sample`.

    Args:
        data: Transforms, (n, 2, 3).
        target_shape: (h, w).

    Returns:
        (n, 2, h, w).
    """
    return make_call("image.affine_grid", data, target_shape=tuple(target_shape))


@type_rule("image.affine_grid")
def infer_affine_grid(call: Inputs) -> Type:
    call.count(1)
    theta = call.tensor(0, 3)
    return TensorType((theta.shape[0], 2, *call.positive("target_shape", 2)), theta.dtype)


@converter("image.affine_grid")
def convert_affine_grid(op: OpCall) -> RelaxExpr:
    size = tuple(int(s) for s in op.attrs["target_shape"])
    return relax.op.image.affine_grid(op.args[0], size)
