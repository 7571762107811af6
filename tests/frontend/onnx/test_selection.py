"""Masked assignments, as PyTorch's exporters write them, and other uses of NonZero."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import convoy  # noqa: E402
from convoy import errors  # noqa: E402

from .support import check, model, run, values  # noqa: E402

node = onnx.helper.make_node
X = {"x": values(2, 3, 4)}
WEIGHTS: dict[str, np.ndarray] = {
    "zero": np.float32(0), "half": np.float32(0.5), "two": np.float32(2),
    "vector": values(4, seed=1), "no": np.array([False]),
    "flat": np.array([-1]), "first": np.array([0]), "one": np.array([1]), "last": np.array([2]),
    "four": np.array([4]), "columns": np.array([1, 1]),
}  # fmt: skip
WEIGHTS = {name: np.asarray(value) for name, value in WEIGHTS.items()}
MASK = [node("Greater", ["x", "zero"], ["mask"])]
PLACES = [*MASK, node("NonZero", ["mask"], ["nonzero"]), node("Transpose", ["nonzero"], ["places"])]
#: The number of true elements, of places and by adding up.
SIZE = [
    node("Shape", ["places"], ["shape"]),
    node("Gather", ["shape", "first"], ["count"]),
]
SUM = [
    node("Reshape", ["mask", "flat"], ["flat_mask"]),
    node("Cast", ["flat_mask"], ["numbers"], to=onnx.TensorProto.INT64),
    node("ReduceSum", ["numbers", "first"], ["count"], keepdims=1),
]
PUT = node("ScatterND", ["x", "places", "updates"], ["y"])
ROWS = [
    node("ReduceSum", ["x", "last"], ["sums"], keepdims=0),
    node("Greater", ["sums", "zero"], ["mask"]),
]
NETWORKS: dict[str, list[Any]] = {
    "a number": [*PLACES, *SUM, node("Expand", ["half", "count"], ["updates"]), PUT],
    "a function of what is selected": [
        *PLACES,
        *SIZE,
        node("GatherND", ["x", "places"], ["chosen"]),
        node("Mul", ["chosen", "two"], ["twice"]),
        node("Sin", ["twice"], ["sine"]),
        node("Reshape", ["sine", "flat"], ["row"]),
        node("Slice", ["row", "first", "count", "first"], ["updates"]),
        PUT,
    ],
    "columns of places": [
        *ROWS,
        node("NonZero", ["mask"], ["nonzero"]),
        node("Transpose", ["nonzero"], ["all"]),
        node("Split", ["all", "columns"], ["a", "b"], axis=1),
        node("Squeeze", ["a", "one"], ["c"]),
        node("Squeeze", ["b", "one"], ["d"]),
        node("Add", ["c", "d"], ["both"]),
        node("Shape", ["both"], ["count"]),
        node("Expand", ["c", "count"], ["c1"]),
        node("Unsqueeze", ["c1", "flat"], ["e"]),
        node("Unsqueeze", ["d", "flat"], ["f"]),
        node("Concat", ["e", "f"], ["places"], axis=-1),
        node("Concat", ["count", "four"], ["shape"], axis=0),
        node("Expand", ["vector", "shape"], ["updates"]),
        PUT,
    ],
    "rows": [
        *ROWS,
        node("Unsqueeze", ["mask", "last"], ["column"]),
        node("Shape", ["x"], ["sizes"]),
        node("Expand", ["column", "sizes"], ["full"]),
        node("NonZero", ["full"], ["nonzero"]),
        node("Transpose", ["nonzero"], ["places"]),
        *SUM,
        node("Concat", ["count", "four"], ["shape"], axis=0),
        node("Expand", ["vector", "shape"], ["vectors"]),
        node("Reshape", ["vectors", "flat"], ["updates"]),
        PUT,
    ],
}


def test_a_sum_of_numbers_is_no_count() -> None:
    """It may be larger than the number of those that are not zero."""
    cast = node("Cast", ["mask"], ["numbers8"], to=onnx.TensorProto.INT8)
    nodes = [
        MASK[0],
        cast,
        node("NonZero", ["numbers8"], ["nonzero"]),
        node("Transpose", ["nonzero"], ["places"]),
        node("Reshape", ["numbers8", "flat"], ["flat_mask"]),
        *SUM[1:],
        node("Expand", ["half", "count"], ["updates"]),
        PUT,
    ]
    with pytest.raises(errors.UnsupportedOp, match=r"Expand .* whose shape depends"):
        convoy.from_onnx(model(nodes, X, weights=used(nodes)))


def used(nodes: list[Any]) -> dict[str, np.ndarray]:
    names = {name for one in nodes for name in one.input}
    return {name: value for name, value in WEIGHTS.items() if name in names}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("shift", [0, 9, -9])
def test_assignments(name: str, shift: int) -> None:
    """Through masks of some, all and no elements."""
    nodes = NETWORKS[name]
    check(nodes, {"x": X["x"] + np.float32(shift)}, weights=used(nodes))


@pytest.mark.parametrize("kind", ["Sum", "Mean", "Max", "Min"])
def test_reductions(kind: str) -> None:
    nodes = [
        *ROWS,
        node("NonZero", ["mask"], ["nonzero"]),
        node("Transpose", ["nonzero"], ["places"]),
        node("GatherND", ["x", "places"], ["chosen"]),
        node("Mul", ["chosen", "two"], ["twice"]),
        node(f"Reduce{kind}", ["twice", "first"], ["y"], keepdims=0),
        node(f"Reduce{kind}", ["chosen"], ["z"]),
    ]
    check(nodes, X, ("y", "z"), weights=used(nodes))


def test_the_mean_of_many_in_float16() -> None:
    """Their number is infinite in float16."""
    nodes = [
        node("Greater", ["x", "zero"], ["mask"]),
        node("NonZero", ["mask"], ["nonzero"]),
        node("Transpose", ["nonzero"], ["places"]),
        node("GatherND", ["x", "places"], ["chosen"]),
        node("ReduceMean", ["chosen"], ["y"], keepdims=0),
    ]
    x = np.where(np.arange(140_000) % 2, 0.25, -1).astype("float16")
    (got,) = run(model(nodes, {"x": x}, weights={"zero": np.float16([0])}), {"x": x})
    assert got == 0.25 and got.dtype == np.float16


CHOSEN = [*PLACES, node("GatherND", ["x", "places"], ["chosen"])]
REFUSED: dict[str, list[Any]] = {
    "an output": [*CHOSEN[:-1], node("GatherND", ["x", "places"], ["y"])],
    "places": [*MASK, node("NonZero", ["mask"], ["y"])],
    "a norm": [*CHOSEN, node("ReduceL2", ["chosen"], ["y"])],
    "a count": [*PLACES, *SIZE, node("Mul", ["count", "four"], ["y"])],
    "a part": [*CHOSEN, node("Slice", ["chosen", "first", "one", "first"], ["y"])],
    "another order": [
        *CHOSEN,
        node("TopK", ["chosen", "one"], ["updates", "order"], axis=0),
        PUT,
    ],
    "another mask": [
        *CHOSEN,
        node("Not", ["mask"], ["others"]),
        node("NonZero", ["others"], ["nonzero2"]),
        node("Transpose", ["nonzero2"], ["places2"]),
        node("ScatterND", ["x", "places2", "chosen"], ["y"]),
    ],
    "other places": [
        *CHOSEN,
        node("Add", ["places", "one"], ["next"]),
        node("ScatterND", ["x", "next", "chosen"], ["y"]),
    ],
    "a sum of updates": [
        *CHOSEN,
        node("ScatterND", ["x", "places", "chosen"], ["y"], reduction="add"),
    ],
    "a number of values that are no mask's": [
        *PLACES,
        node("Slice", ["x", "first", "one", "first"], ["updates"]),
        PUT,
    ],
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_uses_are_refused(name: str) -> None:
    nodes = REFUSED[name]
    with pytest.raises(errors.UnsupportedOp, match=r"NonZero.*outputs=\['(mask|others)'\]"):
        convoy.from_onnx(model(nodes, X, weights=used(nodes)))
