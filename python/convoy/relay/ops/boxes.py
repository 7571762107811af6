"""Boxes of detection networks: valid ones, and those that others do not suppress.

The loops over boxes are those of TVM's topi.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from convoy.relay.ast import Call, Constant, Expr, Tuple, TupleWrapper
from convoy.relay.builder import const as constant
from convoy.relay.lazy import topi
from convoy.relay.ops.arguments import make_call
from convoy.relay.ops.expansion_call import attrs_of, const, plain, type_of
from convoy.relay.ops.registry import builder, converter, expansion, shape_arguments, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr, is_const
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.types import Any as DynamicDim
from convoy.relay.types import Dim, TensorType, TupleType, Type


def _scalar(value: Any, dtype: str) -> Expr:
    return value if isinstance(value, Expr) else constant(value, dtype)


@builder("vision.get_valid_counts")
def get_valid_counts(
    data: Expr, score_threshold: Any, id_index: int = 0, score_index: int = 1
) -> TupleWrapper:
    """Move boxes over a score to the front.

    Args:
        data: (batch, boxes, numbers).
        score_threshold: A number or a scalar expression.
        id_index, score_index: Places of the class (-1 for none) and of the score in a box.

    Returns:
        How many are valid (batch,), the boxes in order, -1 behind the valid ones, and their former
        positions (batch, boxes).
    """
    attrs = {"score_threshold": None, "id_index": id_index, "score_index": score_index}
    args = (data, _scalar(score_threshold, "float32"))
    return TupleWrapper(make_call("vision.get_valid_counts", *args, **attrs), 3)


@type_rule("vision.get_valid_counts")
def infer_get_valid_counts(call: Inputs) -> Type:
    call.count(2)
    data = call.tensor(0, 3)
    for field in ("id_index", "score_index"):
        if isinstance(data.shape[2], int) and call.attrs.get_int(field) >= data.shape[2]:
            raise call.error(f"{field}={call.attrs[field]} of {data}", "a place in a box")
    indices = TensorType(data.shape[:2], "int32")
    return TupleType([TensorType(data.shape[:1], "int32"), data, indices])


@expansion("vision.get_valid_counts")
def expand_get_valid_counts(call: Call, args: Sequence[Expr]) -> Expr:
    """Number the valid boxes, and scatter each to its number."""
    attrs, type_ = attrs_of(call), type_of(call, 0)
    threshold = plain("cast", plain("reshape", args[1], newshape=()), dtype=type_.dtype)
    valid = plain("greater", _number(args[0], attrs["score_index"]), threshold)
    if attrs["id_index"] >= 0:
        known = _number(args[0], attrs["id_index"])
        zero = const(0, type_.dtype)
        valid = plain("logical_and", valid, plain("greater_equal", known, zero))
    return Tuple(compacted(valid, args[0], type_))


def _number(boxes: Expr, place: int) -> Expr:
    return plain("take", boxes, const(place, "int32"), axis=2)


def compacted(valid: Expr, boxes: Expr, type_: TensorType, rest: int = -1) -> list[Expr]:
    """Move the boxes (batch, boxes, n) where `valid` holds to the front; see get_valid_counts.

    Args:
        valid: Which boxes to keep (batch, boxes).
        boxes: The boxes.
        type_: Their type.
        rest: The number behind the boxes that are kept.
    """
    batch, count, width = type_.concrete_shape
    mask = plain("cast", valid, dtype="int32")
    number = plain("subtract", plain("cumsum", mask, axis=1), const(1, "int32"))
    # Boxes that are not valid go to one more row, which is cut off.
    target = plain("where", valid, number, const(count, "int32"))
    rows = const(np.repeat(np.arange(batch), count).reshape(batch, count), "int32")
    places = plain("stack", Tuple([rows, target]), axis=0)
    moved = []
    order = np.broadcast_to(np.arange(count), (batch, count))
    for values, shape, dtype in (
        (boxes, (batch, count + 1, width), type_.dtype),
        (const(order, "int32"), (batch, count + 1), "int32"),
    ):
        empty = plain("full", const(rest, dtype), shape=shape, dtype=dtype)
        scattered = plain("scatter_nd", empty, places, values)
        cut = {"begin": (0, 0), "end": (batch, count), "strides": (1, 1), "axes": None}
        moved.append(plain("strided_slice", scattered, **cut))
    return [plain("sum", mask, axis=(1,)), *moved]


@builder("vision.non_max_suppression")
def non_max_suppression(
    data: Expr,
    valid_count: Expr,
    indices: Expr,
    max_output_size: Any = -1,
    iou_threshold: Any = 0.5,
    force_suppress: bool = False,
    top_k: int = -1,
    coord_start: int = 2,
    score_index: int = 1,
    id_index: int = 0,
    return_indices: bool = True,
    invalid_to_bottom: bool = False,
) -> Any:
    """Keep boxes that no box of a higher score overlaps.

    Args:
        data: (batch, boxes, numbers).
        valid_count: How many boxes are valid (batch,).
        indices: The positions (batch, boxes) to return.
        max_output_size: How many to keep; -1 for all.
        iou_threshold: The overlap from which a box is suppressed.
        force_suppress: Compare boxes of different classes as well.
        top_k: How many boxes of the highest scores to look at; -1 for all.
        coord_start, score_index, id_index: Places of the numbers in a box.
        return_indices: Return the positions and their number, instead of the boxes.
        invalid_to_bottom: Move the boxes that are kept to the front.
    """
    args = (_scalar(max_output_size, "int32"), _scalar(iou_threshold, "float32"))
    call = make_call(
        "vision.non_max_suppression", data, valid_count, indices, *args,
        force_suppress=bool(force_suppress), top_k=top_k, coord_start=coord_start,
        score_index=score_index, id_index=id_index, return_indices=bool(return_indices),
        invalid_to_bottom=bool(invalid_to_bottom),
    )  # fmt: skip
    return TupleWrapper(call, 2) if return_indices else call


shape_arguments("vision.non_max_suppression", 3, 4)  # no shape, but TVM's loop needs numbers


@type_rule("vision.non_max_suppression")
def infer_non_max_suppression(call: Inputs) -> Type:
    call.count(5)
    data = call.tensor(0, 3)
    call.tensor(1, 1)
    if call.attrs["return_indices"]:
        kept = TensorType(data.shape[:2], "int32")
        return TupleType([kept, TensorType((data.shape[0], 1), "int32")])
    return data


@converter("vision.non_max_suppression")
def convert_non_max_suppression(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    size, threshold = op.args[3:]
    if not is_const(threshold) or not is_const(size):
        raise op.unsupported("a size or an overlap that is computed", "a constant")
    most = int(size.value.numpy().reshape(()))
    overlap = float(threshold.value.numpy().reshape(()))
    numbers = [attrs.get_int(f) for f in ("top_k", "coord_start", "score_index", "id_index")]
    flags = [bool(attrs[f]) for f in ("force_suppress", "return_indices", "invalid_to_bottom")]

    def suppress(data, count, indices):  # type: ignore[no-untyped-def]
        return topi.vision.non_max_suppression(
            data, count, indices, most, overlap, flags[0], *numbers, flags[1], flags[2]
        )

    return op.te(suppress, *op.args[:3])


@builder("vision.all_class_non_max_suppression")
def all_class_non_max_suppression(
    boxes: Expr,
    scores: Expr,
    max_output_boxes_per_class: Any = -1,
    iou_threshold: Any = -1.0,
    score_threshold: Any = -1.0,
    output_format: str = "onnx",
) -> TupleWrapper:
    """Keep boxes that no box of a higher score overlaps, for each class.

    Args:
        boxes: (batch, boxes, 4).
        scores: (batch, classes, boxes).
        max_output_boxes_per_class, iou_threshold, score_threshold: Numbers or expressions.
        output_format: "onnx" or "tensorflow".

    Returns:
        For "onnx" triples (batch, class, box) of what is kept, and their number. For "tensorflow"
        pairs (class, box) and scores of each batch, zeros behind them, and their numbers.
    """
    args = (
        _scalar(max_output_boxes_per_class, "int32"),
        _scalar(iou_threshold, "float32"),
        _scalar(score_threshold, "float32"),
    )
    name = "vision.all_class_non_max_suppression"
    call = make_call(name, boxes, scores, *args, output_format=output_format)
    return TupleWrapper(call, 2 if output_format == "onnx" else 3)


shape_arguments("vision.all_class_non_max_suppression", 2, 3)


@type_rule("vision.all_class_non_max_suppression")
def infer_all_class_non_max_suppression(call: Inputs) -> Type:
    call.count(5)
    boxes, scores = call.tensor(0, 3), call.tensor(1, 3)
    batch, classes, count = scores.shape[0], scores.shape[1], boxes.shape[1]

    def times(*sizes: Dim) -> Dim:
        total = 1
        for size in sizes:
            if not isinstance(size, int):
                return DynamicDim()
            total *= size
        return total

    if call.attrs["output_format"] == "onnx":
        found = TensorType((times(batch, classes, count), 3), "int64")
        return TupleType([found, TensorType((1,), "int64")])
    kept = times(classes, count)
    return TupleType(
        [
            TensorType((batch, kept, 2), "int64"),
            TensorType((batch, kept), "float32"),
            TensorType((batch,), "int64"),
        ]
    )


@expansion("vision.all_class_non_max_suppression")
def expand_all_class_non_max_suppression(call: Call, args: Sequence[Expr]) -> Expr:
    """Suppress boxes in each pair of a batch and a class, then collect what is left."""
    batch, classes, count = type_of(call, 1).concrete_shape
    dtype, rows = type_of(call, 1).dtype, batch * classes
    most, overlap, least = (
        plain("cast", plain("reshape", arg, newshape=()), dtype=wanted)
        for arg, wanted in zip(args[2:], ("int32", "float32", dtype), strict=True)
    )
    if isinstance(args[2], Constant):
        most = const(args[2].value.reshape(()), "int32")
    if isinstance(args[3], Constant):
        overlap = const(args[3].value.reshape(()), "float32")
    data = _of_each_class(args[0], args[1], (batch, classes, count))
    counts, boxes, places = TupleWrapper(
        plain(
            "vision.get_valid_counts", data, least, score_threshold=None, id_index=-1, score_index=0
        ),
        3,
    )
    kept, number = TupleWrapper(
        plain(
            "vision.non_max_suppression", boxes, counts, places, most, overlap,
            force_suppress=True, top_k=-1, coord_start=1, score_index=0, id_index=-1,
            return_indices=True, invalid_to_bottom=False,
        ),
        2,
    )  # fmt: skip
    valid = plain("less", const(np.arange(count).reshape(1, count), "int32"), number)
    row = np.broadcast_to(np.arange(rows).reshape(rows, 1), (rows, count))
    columns: list[Expr] = [const(row // classes, "int64"), const(row % classes, "int64")]
    columns.append(plain("cast", kept, dtype="int64"))
    numbers = plain("cast", number, dtype="int64")
    if attrs_of(call)["output_format"] == "onnx":
        triples = plain("stack", Tuple(columns), axis=2)
        found = _collected(valid, triples, (1, rows * count, 3), "int64")
        total = plain("reshape", plain("sum", numbers, axis=None), newshape=(1,))
        return Tuple([plain("reshape", found, newshape=(rows * count, 3)), total])
    pairs = plain("stack", Tuple(columns[1:]), axis=2)
    safe = plain("maximum", kept, const(0, "int32"))
    scores = plain("gather", plain("reshape", args[1], newshape=(rows, count)), safe, axis=1)
    scores = plain("cast", scores, dtype="float32")
    size = (batch, classes * count)
    found_scores = _collected(valid, scores, (*size, 1), "float32", 0)
    totals = plain("sum", plain("reshape", numbers, newshape=(batch, classes)), axis=(1,))
    return Tuple(
        [
            _collected(valid, pairs, (*size, 2), "int64", 0),
            plain("reshape", found_scores, newshape=size),
            totals,
        ]
    )


def _of_each_class(boxes: Expr, scores: Expr, sizes: tuple[int, int, int]) -> Expr:
    """Return (batch * classes, boxes, 5): the score, then the corners in ascending order."""
    batch, classes, count = sizes
    half = {"strides": (1,), "axes": (2,)}
    first = plain("strided_slice", boxes, begin=(0,), end=(2,), **half)
    second = plain("strided_slice", boxes, begin=(2,), end=(4,), **half)
    corners = [plain("minimum", first, second), plain("maximum", first, second)]
    joined = plain("expand_dims", plain("concatenate", Tuple(corners), axis=2), axis=1)
    spread = plain("broadcast_to", joined, shape=(batch, classes, count, 4))
    every = plain("reshape", spread, newshape=(batch * classes, count, 4))
    score = plain("reshape", scores, newshape=(batch * classes, count, 1))
    return plain("concatenate", Tuple([score, every]), axis=2)


def _collected(
    valid: Expr, values: Expr, shape: tuple[int, int, int], dtype: str, rest: int = -1
) -> Expr:
    """Reshape values to (batch, n, width) and move the valid ones to the front."""
    mask = plain("reshape", valid, newshape=shape[:2])
    reshaped = plain("reshape", values, newshape=shape)
    return compacted(mask, reshaped, TensorType(shape, dtype), rest)[1]


@builder("vision.regular_non_max_suppression")
def regular_non_max_suppression(
    boxes: Expr,
    scores: Expr,
    max_detections_per_class: int,
    max_detections: int,
    num_classes: int,
    iou_threshold: float,
    score_threshold: float,
) -> TupleWrapper:
    """Build the call of TFLite's detection; only its type is known, as in TVM."""
    attrs = {
        "max_detections_per_class": max_detections_per_class,
        "max_detections": max_detections,
        "num_classes": num_classes,
        "iou_threshold": iou_threshold,
        "score_threshold": score_threshold,
    }
    call = make_call("vision.regular_non_max_suppression", boxes, scores, **attrs)
    return TupleWrapper(call, 4)


@type_rule("vision.regular_non_max_suppression")
def infer_regular_non_max_suppression(call: Inputs) -> Type:
    call.count(2)
    boxes, most = call.tensor(0, 3), call.attrs.get_int("max_detections")
    kept = TensorType((boxes.shape[0], most), "float32")
    return TupleType(
        [
            TensorType((boxes.shape[0], most, 4), "float32"),
            kept,
            kept,
            TensorType((boxes.shape[0],), "float32"),
        ]
    )
