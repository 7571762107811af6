"""Resizing as PyTorch does it, over one to three axes; sampling at the points of a grid.

The weights of a row of the result are what PyTorch makes of the rows of the identity, and its
positions what it makes of 0, 1, 2, ...
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from tvm import relax
from tvm.relax import op

from ..graph.expr import dtype_of

#: Elements that a result takes part of, at most, before an axis is resized by a matmul.
_MOST_TAPS = 4


@dataclass(frozen=True)
class _Axis:
    """One axis: its size, that of the result, and the factor given for both, if one was."""

    size: int
    out: int
    factor: float | None
    align: bool

    @property
    def plain(self) -> bool:
        """Whether the sizes say where the result is sampled."""
        return self.factor is None or self.align or self.size * self.factor == self.out

    def resized(self, rows: torch.Tensor, mode: str, antialias: bool) -> torch.Tensor:
        """PyTorch's result for (count, size)."""
        options: dict[str, Any] = {"mode": mode}
        if mode in ("bilinear", "bicubic"):
            options |= {"align_corners": self.align, "antialias": antialias}
        if self.plain:
            options["size"] = (1, self.out)
        else:
            options |= {"scale_factor": (1.0, self.factor), "recompute_scale_factor": False}
        return F.interpolate(rows[:, None, None], **options)[:, 0, 0]


def _upsample(mode: str, antialias: bool = False) -> Callable[[Any, Any], relax.Expr]:
    """A converter of (x, size, [align_corners], factors): "nearest", "nearest-exact", "bilinear"
    (also over one or three axes) or "bicubic"."""
    nearest = mode.startswith("nearest")

    def convert(node: Any, importer: Any) -> relax.Expr:
        x, emit = importer.env[node.args[0]], importer.block_builder.emit
        if nearest or dtype_of(x) != "uint8":
            return resized(node, x, importer)
        y = emit(resized(node, emit(op.astype(x, "float32")), importer))
        # Cubic weights reach beyond the bytes.
        rounded = emit(op.floor(emit(op.add(y, relax.const(0.5, "float32")))))
        return emit(op.astype(emit(op.clip(rounded, 0, 255)), "uint8"))

    def resized(node: Any, x: relax.Expr, importer: Any) -> relax.Expr:
        _, _, *rest = importer.retrieve_args(node)
        emit = importer.block_builder.emit
        align = False if nearest or not rest else bool(rest.pop(0))
        rank = len(x.ty.shape) - 2
        factors = rest[0] if rest and isinstance(rest[0], list | tuple) else rest
        factors = list(factors) if len(factors) == rank else [None] * rank
        before = [int(size) for size in x.ty.shape]
        after = [int(size) for size in node.meta["val"].shape]
        axes = [
            _Axis(size, out, factor, align)
            for size, out, factor in zip(before[2:], after[2:], factors, strict=True)
        ]
        if not antialias and (whole := _resized_at_once(x, axes, mode)) is not None:
            return emit(whole)
        for i, axis in enumerate(axes):
            if axis.size == axis.out and axis.plain:
                continue
            if nearest:
                numbers = torch.arange(axis.size, dtype=torch.float32)[None]
                positions = axis.resized(numbers, mode, False)[0].numpy().astype("int64")
                x = emit(op.take(x, relax.const(positions), axis=i + 2, mode="clip"))
                continue
            weights = axis.resized(torch.eye(axis.size), mode, antialias).numpy().T
            few = (weights != 0).sum(axis=1).max() <= _MOST_TAPS
            x = (_weighted_taps if few else _matmul)(weights, x, i + 2, emit)
        return x

    return convert


def _weighted_taps(
    weights: np.ndarray, x: relax.Expr, axis: int, emit: Callable[[relax.Expr], relax.Expr]
) -> relax.Expr:
    """The matmul of weights (out, size) and an axis, of few weights in a row that are not zero:
    the elements that each result takes part of, times these. As in PyTorch, an element without
    weight is the next neighbour; behind the last one, it shares the weight of that."""
    taps = int((weights != 0).sum(axis=1).max())
    positions = np.argsort(weights == 0, axis=1, kind="stable")[:, :taps]
    factors = np.take_along_axis(weights, positions, axis=1)
    last = np.where(factors != 0, positions, 0).max(axis=1, keepdims=True)
    positions = np.where(factors != 0, positions, np.minimum(last + 1, weights.shape[1] - 1))
    shared = positions == last
    share = (factors * shared).sum(axis=1, keepdims=True) / shared.sum(axis=1, keepdims=True)
    factors = np.where(shared, share, factors)
    behind = [1] * (len(x.ty.shape) - axis - 1)
    parts = []
    for index, factor in zip(positions.T, factors.T, strict=True):
        part = emit(op.take(x, relax.const(index.astype("int64")), axis=axis, mode="clip"))
        scale = factor.reshape(-1, *behind).astype(str(x.ty.dtype))
        parts.append(emit(op.multiply(part, relax.const(scale))))
    return functools.reduce(lambda total, part: emit(op.add(total, part)), parts)


def _matmul(
    weights: np.ndarray, x: relax.Expr, axis: int, emit: Callable[[relax.Expr], relax.Expr]
) -> relax.Expr:
    """The matmul of weights (out, size) and an axis."""
    shape = [int(size) for size in x.ty.shape]
    rows = [math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])]
    matrix = relax.const(np.ascontiguousarray(weights).astype(str(x.ty.dtype)))
    y = emit(op.matmul(matrix, emit(op.reshape(x, rows))))
    return emit(op.reshape(y, [*shape[:axis], len(weights), *shape[axis + 1 :]]))


def _resized_at_once(x: relax.Expr, axes: list[_Axis], mode: str) -> relax.Expr | None:
    """The whole by one operator, where there is one that samples as PyTorch does."""
    size, align = tuple(axis.out for axis in axes), axes[0].align
    if len(axes) == 1 or not all(axis.plain for axis in axes):
        return None
    if mode == "nearest":
        if any(axis.out % axis.size for axis in axes):
            return None
        options = {"method": "nearest_neighbor", "rounding_method": "floor"}
        options["coordinate_transformation_mode"] = "asymmetric"
    # With one row, TVM divides by zero for aligned corners.
    elif mode == "bilinear" or (mode == "bicubic" and len(axes) == 2):
        if min(size) == 1:
            return None
        method = "linear" if mode == "bilinear" else "cubic"
        options = {"method": method, "rounding_method": ""}
        options["coordinate_transformation_mode"] = "align_corners" if align else "half_pixel"
    else:
        return None
    if len(axes) == 3:
        return op.image.resize3d(x, size, layout="NCDHW", **options)
    return op.image.resize2d(x, size, layout="NCHW", cubic_alpha=-0.75, **options)


def _grid_sample(node: Any, importer: Any) -> relax.Expr:
    """Samples (n, c, *out) of (n, c, *sizes) at a grid (n, *out, axes) of coordinates from -1 to 1,
    the last axis first."""
    x, grid, method, padding, align = importer.retrieve_args(node)
    emit, rank = importer.block_builder.emit, len(x.ty.shape)
    return emit(
        op.image.grid_sample(
            x,
            emit(op.permute_dims(grid, [0, rank - 1, *range(1, rank - 1)])),
            method=("bilinear", "nearest", "bicubic")[method],
            layout="NCHW" if rank == 4 else "NCDHW",
            padding_mode=("zeros", "border", "reflection")[padding],
            align_corners=bool(align),
        )
    )


#: Converted as a whole; PyTorch would take them apart into gathers.
_KINDS = {
    "upsample_nearest1d": "nearest",
    "upsample_nearest2d": "nearest",
    "upsample_nearest3d": "nearest",
    "_upsample_nearest_exact1d": "nearest-exact",
    "_upsample_nearest_exact2d": "nearest-exact",
    "_upsample_nearest_exact3d": "nearest-exact",
    "upsample_linear1d": "bilinear",
    "upsample_bilinear2d": "bilinear",
    "upsample_trilinear3d": "bilinear",
    "upsample_bicubic2d": "bicubic",
}
_ANTIALIASED = {"_upsample_bilinear2d_aa": "bilinear", "_upsample_bicubic2d_aa": "bicubic"}

WHOLE = tuple(_KINDS | _ANTIALIASED)

CONVERTERS = {
    "grid_sampler_2d.default": _grid_sample,
    "grid_sampler_3d.default": _grid_sample,
    **{f"{n}.{o}": _upsample(m) for n, m in _KINDS.items() for o in ("default", "vec")},
    **{f"{n}.{o}": _upsample(m, True) for n, m in _ANTIALIASED.items() for o in ("default", "vec")},
}
