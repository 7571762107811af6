"""Constructs of opsets that later ones replaced, against numpy where onnx has no reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from .support import info, model, run, values  # noqa: E402

node = onnx.helper.make_node
X = values(2, 4, 6, 5)


def stretched(a: np.ndarray) -> np.ndarray:
    """``a`` along axis 1 of ``X``."""
    return a.reshape(-1, 1, 1)


def normalized(axes: tuple[int, ...]) -> np.ndarray:
    spread = X - X.mean(axes, keepdims=True)
    return spread / spread.std(axes, keepdims=True)


PADS = [0, 0, 1, 2, 0, 0, 3, 0]
WIDTHS = [(0, 0), (0, 0), (1, 3), (2, 0)]


@pytest.mark.parametrize(
    "opset, op, attrs, expected",
    [
        (1, "Pad", {"paddings": PADS, "value": 0.5}, np.pad(X, WIDTHS, constant_values=0.5)),
        (1, "Upsample", {"height_scale": 2.0, "width_scale": 3.0}, X.repeat(2, 2).repeat(3, 3)),
        (7, "MeanVarianceNormalization", {"across_channels": 1}, normalized((0, 1, 2, 3))),
        (
            7,
            "MeanVarianceNormalization",
            {"normalize_variance": 0},
            X - X.mean((0, 2, 3), keepdims=True),
        ),
        (7, "Affine", {"alpha": 2.0, "beta": 0.5}, 2 * X + 0.5),
        (7, "ScaledTanh", {"alpha": 2.0, "beta": 0.5}, 2 * np.tanh(X / 2)),
        (7, "ParametricSoftplus", {"alpha": 2.0, "beta": 0.5}, 2 * np.log(1 + np.exp(X / 2))),
        (7, "ThresholdedRelu", {"alpha": 0.3}, np.where(X > 0.3, X, 0)),
        (7, "Crop", {"border": [0, 1, 2, 3]}, X[:, :, 1:3, :3]),
        (7, "Crop", {"border": [0, 1, 0, 0], "scale": [3, 2]}, X[:, :, 1:4, :2]),
        (
            7,
            "ImageScaler",
            {"scale": 2.0, "bias": [0.1, 0.2, 0.3, 0.4]},
            2 * X + stretched(np.array([0.1, 0.2, 0.3, 0.4], "float32")),
        ),
    ],
)
def test_attributes(opset: int, op: str, attrs: dict[str, Any], expected: np.ndarray) -> None:
    (got,) = run(model([node(op, ["x"], ["y"], **attrs)], {"x": X}, opset=opset), {"x": X})
    np.testing.assert_allclose(got, expected, 1e-5, 1e-5)


def test_tiles_along_one_axis() -> None:
    weights = {"tiles": np.array([3], "float32"), "axis": np.array([1], "float32")}
    call = node("Tile", ["x", "tiles", "axis"], ["y"])
    (got,) = run(model([call], {"x": X}, weights=weights, opset=1), {"x": X})
    np.testing.assert_array_equal(got, np.tile(X, (1, 3, 1, 1)))


def test_bounds_of_slices_that_are_inputs() -> None:
    weights = {"starts": np.array([1, 0]), "ends": np.array([4, 2]), "axes": np.array([2, 3])}
    call = node("DynamicSlice", ["x", *weights], ["y"])
    (got,) = run(model([call], {"x": X}, weights=weights, opset=7), {"x": X})
    np.testing.assert_array_equal(got, X[:, :, 1:4, :2])


@pytest.mark.parametrize("known", [True, False])
def test_the_axis_of_a_broadcast(known: bool) -> None:
    """Of constants too, whose sizes numpy would align with another axis."""
    a, b = values(3, 3), values(3, seed=1)
    call = node("Mul", ["a", "b"], ["y"], broadcast=1, axis=0)
    feeds, weights = ({}, {"a": a, "b": b}) if known else ({"a": a}, {"b": b})
    (got,) = run(model([call], feeds, weights=weights, opset=6), feeds)
    np.testing.assert_allclose(got, a * b[:, None], 1e-6)


@pytest.mark.parametrize("shape", [(4,), (4, 6, 5)])
def test_statistics_for_each_element(shape: tuple[int, ...]) -> None:
    """MXNet writes spatial=0 with statistics of channels as well."""
    parts = {name: values(*shape, seed=i) + 1.5 for i, name in enumerate("sbmv")}
    call = node("BatchNormalization", ["x", *"sbmv"], ["y"], spatial=0)
    (got,) = run(model([call], {"x": X}, weights=parts, opset=7), {"x": X})
    s, b, m, v = (a if a.ndim > 1 else stretched(a) for a in parts.values())
    np.testing.assert_allclose(got, (X - m) / np.sqrt(v + 1e-5) * s + b, 1e-4, 1e-5)


def test_scattered_constants_are_known() -> None:
    """As tf2onnx pads symmetrically: a reflection, of which a constant mask leaves rows out."""
    weights = {"all": np.array([True] * 4), "at": np.array([2]), "no": np.array([False])}
    nodes = [
        node("Scatter", ["all", "at", "no"], ["mask"]),
        node("Compress", ["x", "mask"], ["y"], axis=1),
    ]
    (got,) = run(model(nodes, {"x": X}, weights=weights, opset=9), {"x": X})
    np.testing.assert_array_equal(got, X[:, [0, 1, 3]])


def test_the_number_of_a_turn_as_a_vector() -> None:
    """As tf2onnx declares it."""
    helper = onnx.helper
    outputs = [("go", np.array(True)), ("sum", X), ("row", X[0])]
    body = helper.make_graph(
        [
            node("Gather", ["x", "i"], ["picked"], axis=0),
            node("Squeeze", ["picked"], ["row"], axes=[0]),
            node("Add", ["old", "row"], ["sum"]),
            node("Identity", ["on"], ["go"]),
        ],
        "body",
        [info("i", np.zeros(1, "int64")), info("on", np.array(True)), info("old", X)],
        [info(name, value) for name, value in outputs],
    )
    nodes = [node("Loop", ["turns", "", "x"], ["y", "rows"], body=body)]
    feeds, weights = {"x": X}, {"turns": np.array(2)}
    got, rows = run(model(nodes, feeds, ("y", "rows"), weights, opset=9), feeds)
    np.testing.assert_allclose(got, X + X[0] + X[1], 1e-6)
    np.testing.assert_array_equal(rows, X)
