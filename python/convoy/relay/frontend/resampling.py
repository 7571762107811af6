"""Resizing along axes by nearest, linear or cubic interpolation.

Where TVM's image operators compute the same, they are called. All other combinations of options are
constants: indices for nearest, and for interpolation a matrix of weights for each axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from convoy.onnx.ops import interpolation
from convoy.onnx.ops.interpolation import Axis
from convoy.relay.ast import Expr
from convoy.relay.frontend.common import const, dtype_of, infer_shape, rank, swap
from convoy.relay.frontend.linear_algebra import matmul
from convoy.relay.op import image
from convoy.relay.op import tensor as R


@dataclass(frozen=True)
class Resize:
    """Parameters of a resize.

    Attributes:
        sizes: The new size of each axis that changes.
        scales: The factor of coordinates for each of them; new / old size where it is left out.
        mode: "nearest", "linear" or "cubic".
        coordinates: How places of the output map to the input: half_pixel, align_corners,
            asymmetric, as ONNX's Resize has them.
        rounding: Of nearest: round_prefer_floor, round_prefer_ceil, floor, ceil.
        cubic: The coefficient of cubic interpolation.
        exclude_outside: Whether places outside have no weight; else the border goes on.
        antialias: Whether shrinking averages over what an element covers.
    """

    sizes: Mapping[int, int]
    scales: Mapping[int, float] = field(default_factory=dict)
    mode: str = "nearest"
    coordinates: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False

    def scale(self, axis: int, size: int) -> float:
        """Return the factor of an axis."""
        return self.scales.get(axis) or self.sizes[axis] / size

    def matrix(self, axis: int, size: int) -> np.ndarray:
        """Return the weight of each element of an axis for each of the result, (new, size)."""
        attrs = {
            "mode": self.mode,
            "coordinate_transformation_mode": self.coordinates,
            "nearest_mode": self.rounding,
            "cubic_coeff_a": self.cubic,
            "exclude_outside": self.exclude_outside,
            "antialias": self.antialias,
        }
        scale = self.scale(axis, size)
        return interpolation.weights(Axis(size, self.sizes[axis], scale, (0.0, 1.0), attrs))[0]


def resize(data: Expr, how: Resize) -> Expr:
    """Resize axes of a tensor; a size that does not change costs nothing."""
    shape = infer_shape(data)
    changed = [a for a, new in how.sizes.items() if new != shape[a]]
    if not changed:
        return data
    if _fits_image(how, changed, shape) and dtype_of(data) == "float32":
        return image.resize2d(
            data,
            size=tuple(how.sizes.get(a, shape[a]) for a in (2, 3)),
            method={"nearest": "nearest_neighbor"}.get(how.mode, how.mode),
            coordinate_transformation_mode=how.coordinates,
            rounding_method="floor" if how.mode == "nearest" else "",
            cubic_alpha=how.cubic,
        )
    for axis in changed:
        data = _along(data, axis, shape[axis], how)
    return data


def _fits_image(how: Resize, changed: Sequence[int], shape: Sequence[int]) -> bool:
    """Return whether `image.resize2d` computes this."""
    if len(shape) != 4 or not set(changed) <= {2, 3} or how.antialias or how.exclude_outside:
        return False
    factors = [how.scale(a, shape[a]) * shape[a] / how.sizes[a] for a in changed]
    if not np.allclose(factors, 1, rtol=1e-6):
        return False
    if how.mode == "nearest":
        whole = all(how.sizes[a] % shape[a] == 0 for a in changed)
        return whole and how.coordinates == "asymmetric" and how.rounding == "floor"
    return how.coordinates in ("half_pixel", "align_corners", "asymmetric") and all(
        how.sizes[a] > 1 for a in changed
    )


def _along(data: Expr, axis: int, size: int, how: Resize) -> Expr:
    """Resize one axis."""
    matrix = how.matrix(axis, size)
    if how.mode == "nearest":
        return R.take(data, const(matrix.argmax(1)), axis=axis)
    weights = np.ascontiguousarray(matrix.T.astype(dtype_of(data)))
    last = rank(data) - 1
    return swap(matmul(swap(data, axis, last), const(weights)), axis, last)
