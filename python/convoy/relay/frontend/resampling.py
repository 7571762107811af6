"""Resizing along axes by nearest, linear or cubic interpolation.

Where TVM's image operators compute the same, they are called. All other combinations of options are
constants: indices for nearest, and for interpolation a matrix of weights for each axis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import const, dims, dtype_of, infer_shape, rank, swap
from convoy.relay.frontend.linear_algebra import matmul
from convoy.relay.op import image
from convoy.relay.op import tensor as R


@dataclass(frozen=True)
class Resize:
    """How to resize.

    Attributes:
        sizes: The new size of each axis that changes.
        scales: The factor of coordinates for each of them; new / old size where it is left out.
        mode: "nearest", "linear" or "cubic".
        coordinates: How places of the output map to the input: half_pixel, align_corners,
            asymmetric, pytorch_half_pixel, half_pixel_symmetric, tf_crop_and_resize.
        rounding: Of nearest: round_prefer_floor, round_prefer_ceil, floor, ceil.
        cubic: The coefficient of cubic interpolation.
        exclude_outside: Whether places outside have no weight; else the border goes on.
        antialias: Whether shrinking averages over what an element covers.
        regions: Start and end of the crop by axis, for tf_crop_and_resize.
        outside: The value beyond the input, for tf_crop_and_resize.
    """

    sizes: Mapping[int, int]
    scales: Mapping[int, float] = field(default_factory=dict)
    mode: str = "nearest"
    coordinates: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    regions: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    outside: float = 0.0

    def scale(self, axis: int, size: int) -> float:
        """Return the factor of an axis."""
        return self.scales.get(axis) or self.sizes[axis] / size

    def places(self, axis: int, size: int) -> np.ndarray:
        """Return the coordinate in the input of each element of the output."""
        new, scale = self.sizes[axis], self.scale(axis, size)
        at = np.arange(new, dtype="float64")
        if self.coordinates == "asymmetric":
            return at / scale
        if self.coordinates == "align_corners":
            return at * (size - 1) / (scale * size - 1) if new > 1 else np.zeros(new)
        if self.coordinates == "pytorch_half_pixel" and new == 1:
            return np.full(1, -0.5)
        if self.coordinates == "tf_crop_and_resize":
            start, end = self.regions[axis]
            if new == 1:
                return np.full(1, 0.5 * (start + end) * (size - 1))
            return start * (size - 1) + at * (end - start) * (size - 1) / (new - 1)
        places = (at + 0.5) / scale - 0.5
        if self.coordinates == "half_pixel_symmetric":
            return places + size / 2 * (1 - new / (scale * size))
        return places


def resize(data: Expr, how: Resize) -> Expr:
    """Resize axes of a tensor; a size that does not change costs nothing."""
    shape = infer_shape(data)
    changed = [
        a for a, new in how.sizes.items() if new != shape[a] or how.coordinates.startswith("tf")
    ]
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
    """Whether `image.resize2d` computes this."""
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
    places = how.places(axis, size)
    beyond = (places < 0) | (places > size - 1)
    beyond &= how.coordinates == "tf_crop_and_resize"
    if how.mode == "nearest":
        indices = np.clip(_ROUND[how.rounding](places), 0, size - 1).astype("int64")
        result = R.take(data, const(indices), axis=axis)
    else:
        weights = _weights(places, size, how, how.scale(axis, size)).astype(dtype_of(data))
        last = rank(data) - 1
        moved = swap(data, axis, last)
        result = swap(matmul(moved, const(np.ascontiguousarray(weights.T))), axis, last)
    if not beyond.any():
        return result
    mask = const(beyond.reshape([-1 if a == axis else 1 for a in range(len(dims(data)))]))
    return R.where(mask, const(np.asarray(how.outside, dtype_of(data))), result)


_ROUND: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _weights(places: np.ndarray, size: int, how: Resize, scale: float) -> np.ndarray:
    """Return the weight of each element of an axis for each place, (places, size)."""
    narrow = min(scale, 1.0) if how.antialias else 1.0
    reach = (1 if how.mode == "linear" else 2) / narrow
    matrix = np.zeros((len(places), size))
    for row, place in enumerate(places):
        base = np.floor(place)
        ratio = place - base
        offsets = np.arange(np.floor(-reach) + 1, np.ceil(reach) + 1)
        values = _kernel((offsets - ratio) * narrow, how)
        columns = (base + offsets).astype("int64")
        if how.exclude_outside:
            values = np.where((columns >= 0) & (columns < size), values, 0)
        if how.antialias or how.exclude_outside:
            values = values / values.sum()
        np.add.at(matrix[row], np.clip(columns, 0, size - 1), values)
    return matrix


def _kernel(x: np.ndarray, how: Resize) -> np.ndarray:
    """Return the weight at a distance."""
    x = np.abs(x)
    if how.mode == "linear":
        return np.clip(1 - x, 0, 1)
    a = how.cubic
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))
