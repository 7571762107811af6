"""Graphs as other tools write them: transposes around each convolution, arithmetic on shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from convoy import errors  # noqa: E402

from .support import check, model, run, values  # noqa: E402

node = onnx.helper.make_node
FLOAT, I64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, "int64")


def test_channels_last_with_a_transpose_around_each_convolution() -> None:
    """As tf2onnx writes Keras' networks; the size of the flattened image is computed in int32."""
    nodes = [
        node("Transpose", ["in:0"], ["model/a__6:0"], perm=[0, 3, 1, 2]),
        node("Conv", ["model/a__6:0", "w"], ["b"], strides=[2, 2], auto_pad="SAME_UPPER"),
        node("Transpose", ["b"], ["c"], perm=[0, 2, 3, 1]),
        node("Mul", ["c", "scale"], ["d"]),
        node("Clip", ["d", "zero", "six"], ["relu6:0"]),
        node("Shape", ["relu6:0"], ["shape"]),
        node("Cast", ["shape"], ["shape32"], to=onnx.TensorProto.INT32),
        node("Slice", ["shape32", "zeros", "ones", "zeros"], ["rows"]),
        node("Concat", ["rows", "rest"], ["wanted"], axis=0),
        node("Cast", ["wanted"], ["wanted64"], to=I64),
        node("Reshape", ["relu6:0", "wanted64"], ["y"]),
    ]
    weights = {"w": values(4, 3, 3, 3), "scale": values(4), "zero": np.float32(0)}
    weights |= {"six": np.float32(6), "zeros": ints(0), "ones": ints(1)}
    weights["rest"] = np.array([-1], "int32")
    check(
        nodes, {"in:0": values(2, 9, 8, 3)}, weights={k: np.asarray(v) for k, v in weights.items()}
    )


def _grid(axis: str, places: list[int]) -> list[Any]:
    return [
        node("Range", ["i0", axis, "i1"], [f"range_{axis}"]),
        node("Cast", [f"range_{axis}"], [f"float_{axis}"], to=FLOAT),
        node("Constant", [], [f"shape_{axis}"], value_ints=places),
        node("Reshape", [f"float_{axis}", f"shape_{axis}"], [f"axis_{axis}"]),
        node("Expand", [f"axis_{axis}", "grid_shape"], [f"grid_{axis}"]),
    ]


def test_boxes_on_a_grid_of_the_size_of_the_image() -> None:
    """As exported detectors decode boxes where the size of the image is open."""
    nodes = [
        node("Conv", ["x", "w"], ["maps"], strides=[4, 4]),
        node("Shape", ["maps"], ["shape"]),
        *(
            node("Gather", ["shape", f"i{i}"], [name])
            for i, name in ((0, "n"), (2, "h"), (3, "w_"))
        ),
        *(node("Unsqueeze", [name, "first"], [f"{name}1"]) for name in ("n", "h", "w_")),
        node("Concat", ["n1", "three", "four", "h1", "w_1"], ["split"], axis=0),
        node("Reshape", ["maps", "split"], ["anchors"]),
        node("Transpose", ["anchors"], ["last"], perm=[0, 1, 3, 4, 2]),
        node("Sigmoid", ["last"], ["bounded"]),
        node("Split", ["bounded", "halves"], ["place", "size"], axis=4),
        node("Concat", ["one", "one", "h1", "w_1", "one"], ["grid_shape"], axis=0),
        *_grid("w_", [1, 1, 1, -1, 1]),
        *_grid("h", [1, 1, -1, 1, 1]),
        node("Concat", ["grid_w_", "grid_h"], ["grid"], axis=-1),
        node("Add", ["place", "grid"], ["centre"]),
        node("Mul", ["size", "prior"], ["extent"]),
        node("Concat", ["centre", "extent"], ["boxes"], axis=4),
        node("Concat", ["n1", "minus", "four"], ["flat"], axis=0),
        node("Reshape", ["boxes", "flat"], ["y"]),
    ]
    weights = {"w": values(12, 3, 4, 4), "prior": values(1, 3, 1, 1, 2), "first": ints(0)}
    weights |= {f"i{i}": np.array(i) for i in range(4)}
    weights |= {"one": ints(1), "three": ints(3), "four": ints(4), "minus": ints(-1)}
    check(nodes, {"x": values(2, 3, 12, 20)}, weights=weights | {"halves": ints(2, 2)})


def test_windows_padded_to_a_multiple() -> None:
    """As window attention is exported: the padding is the remainder of an axis."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "axis"], ["h"]),
        node("Mod", ["h", "seven"], ["over"]),
        node("Sub", ["seven", "over"], ["lack"]),
        node("Mod", ["lack", "seven"], ["pad"]),
        node("Unsqueeze", ["pad", "first"], ["pad1"]),
        node("Concat", ["before", "pad1", "pad1", "first"], ["pads"], axis=0),
        node("Pad", ["x", "pads"], ["padded"]),
        node("Reshape", ["padded", "windows"], ["parts"]),
        node("Transpose", ["parts"], ["turned"], perm=[0, 1, 3, 2, 4, 5]),
        node("Reshape", ["turned", "each"], ["window"]),
        node("Einsum", ["window", "table"], ["bias"], equation="bhwc,hkc->bhwk"),
        node("ScatterND", ["bias", "where", "update"], ["y"]),
    ]
    weights = {"axis": np.array(1), "seven": np.array(7), "first": ints(0)}
    weights |= {"before": ints(0, 0, 0, 0, 0), "windows": ints(1, 2, 7, 2, 7, 4)}
    weights |= {"each": ints(-1, 7, 7, 4), "table": values(7, 7, 4), "update": values(2, 7)}
    check(
        nodes,
        {"x": values(1, 12, 12, 4)},
        weights=weights | {"where": ints(0, 0, 0, 1, 2, 3).reshape(2, 3)},
    )


def test_the_advice_before_boxes_are_selected_names_what_is_computed() -> None:
    """Constants among the operands are no places to end at."""
    nodes = [
        node("Sigmoid", ["x"], ["scores"]),
        node("Constant", [], ["most"], value_ints=[4]),
        node("NonMaxSuppression", ["boxes", "scores", "most"], ["y"]),
    ]
    feeds = {"x": values(1, 2, 6), "boxes": values(1, 6, 4)}
    with pytest.raises(errors.UnsupportedOp, match=r"outputs=\['scores'\]"):
        run(model(nodes, feeds), feeds)
