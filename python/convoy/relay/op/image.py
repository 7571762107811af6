"""`relay.image`: resizing and sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay.ast import Call, Expr
from convoy.relay.op.blocks import crop_and_resize, dilation2d  # noqa: F401  (relay.image too)
from convoy.relay.op.call import call


def _resize(rank: int, default_layout: str) -> Any:
    def resize(
        data: Expr,
        size: Sequence[int],
        roi: Sequence[float] | None = None,
        layout: str = default_layout,
        method: str = "linear",
        coordinate_transformation_mode: str = "half_pixel",
        rounding_method: str = "",
        cubic_alpha: float = -0.5,
        cubic_exclude: int = 0,
        extrapolation_value: float = 0.0,
        out_dtype: str | None = None,
    ) -> Call:
        return call(
            f"image.resize{rank}d",
            data,
            size=(size,) if isinstance(size, int) else tuple(size),
            roi=(0.0,) * (2 * rank) if roi is None else tuple(roi),
            layout=layout,
            method=method,
            coordinate_transformation_mode=coordinate_transformation_mode,
            rounding_method=rounding_method,
            cubic_alpha=cubic_alpha,
            cubic_exclude=cubic_exclude,
            extrapolation_value=extrapolation_value,
            out_dtype=out_dtype,
        )

    resize.__name__ = resize.__qualname__ = f"resize{rank}d"
    resize.__doc__ = f"Resize {rank} axes to `size`."
    return resize


resize1d = _resize(1, "NCW")
resize2d = _resize(2, "NCHW")
resize3d = _resize(3, "NCDHW")


def grid_sample(
    data: Expr,
    grid: Expr,
    method: str = "bilinear",
    layout: str = "NCHW",
    padding_mode: str = "zeros",
    align_corners: bool = True,
) -> Call:
    attrs = {"method": method, "layout": layout, "padding_mode": padding_mode}
    return call("image.grid_sample", data, grid, align_corners=align_corners, **attrs)


def affine_grid(data: Expr, target_shape: Sequence[int]) -> Call:
    return call("image.affine_grid", data, target_shape=tuple(target_shape))
