"""Anchors of detection networks: prior boxes of SSD, proposals of Faster R-CNN, YOLO's reorg."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from convoy.relay.ast import Call, Expr, Tuple, TupleWrapper
from convoy.relay.lazy import topi
from convoy.relay.ops.arguments import make_call
from convoy.relay.ops.boxes import compacted
from convoy.relay.ops.expansion_call import attrs_of, const, plain, type_of
from convoy.relay.ops.registry import builder, converter, expansion, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.shapes import computed
from convoy.relay.types import Any as DynamicDim
from convoy.relay.types import Dim, TensorType, TupleType, Type


@builder("vision.multibox_prior")
def multibox_prior(
    data: Expr,
    sizes: Sequence[float] = (1.0,),
    ratios: Sequence[float] = (1.0,),
    steps: Sequence[float] = (-1.0, -1.0),
    offsets: Sequence[float] = (0.5, 0.5),
    clip: bool = False,
) -> Call:
    """Make prior boxes at each place of a feature map (SSD).

    Args:
        data: (batch, channels, h, w), of which only the sizes count.
        sizes, ratios: Of the boxes; the first ratio with each size, the first size with each ratio.
        steps, offsets: Distances and offsets of centers, y first; -1 for 1 / h and 1 / w.
        clip: Clip boxes to [0, 1].

    Returns:
        (1, h * w * (sizes + ratios - 1), 4).
    """
    attrs = {"sizes": sizes, "ratios": ratios, "steps": steps, "offsets": offsets}
    floats = {name: tuple(map(float, value)) for name, value in attrs.items()}
    return make_call("vision.multibox_prior", data, **floats, clip=bool(clip))


@type_rule("vision.multibox_prior")
def infer_multibox_prior(call: Inputs) -> Type:
    call.count(1)
    data, attrs = call.tensor(0, 4), call.attrs
    each = len(attrs["sizes"]) + len(attrs["ratios"]) - 1
    height, width = data.shape[2:]
    both = isinstance(height, int) and isinstance(width, int)
    boxes: Dim = height * width * each if both else DynamicDim()  # type: ignore[operator]
    return TensorType((1, boxes, 4), data.dtype)


@expansion("vision.multibox_prior")
def expand_multibox_prior(call: Call, args: Sequence[Expr]) -> Expr:
    """Compute the boxes, which are constants."""
    attrs, type_ = attrs_of(call), type_of(call, 0)
    height, width = type_.concrete_shape[2:]
    first, ratios = attrs["sizes"][0], attrs["ratios"][1:]
    halves = [(s * height / width / 2, s / 2) for s in attrs["sizes"]]
    halves += [
        (first * height / width * math.sqrt(r) / 2, first / math.sqrt(r) / 2) for r in ratios
    ]
    step_y, step_x = (
        s if s > 0 else 1 / n for s, n in zip(attrs["steps"], (height, width), strict=True)
    )
    y = (np.arange(height) + attrs["offsets"][0]) * step_y
    x = (np.arange(width) + attrs["offsets"][1]) * step_x
    center = np.stack(np.meshgrid(x, y), axis=-1).reshape(height * width, 1, 2)
    half = np.array(halves).reshape(1, len(halves), 2)
    boxes = np.concatenate([center - half, center + half], axis=-1).reshape(1, -1, 4)
    if attrs["clip"]:
        boxes = boxes.clip(0, 1)
    return const(boxes, type_.dtype)


@builder("vision.multibox_transform_loc")
def multibox_transform_loc(
    cls_prob: Expr,
    loc_pred: Expr,
    anchor: Expr,
    clip: bool = True,
    threshold: float = 0.01,
    variances: Sequence[float] = (0.1, 0.1, 0.2, 0.2),
    keep_background: bool = False,
) -> TupleWrapper:
    """Decode boxes of their anchors (SSD), those with an object first.

    Args:
        cls_prob: (batch, classes, anchors); class 0 is the background.
        loc_pred: (batch, anchors * 4).
        anchor: (1, anchors, 4).
        clip: Clip boxes to [0, 1].
        threshold: Smaller scores count as background.
        variances: Factors of the offsets.
        keep_background: Keep boxes of the background, and count classes with it.

    Returns:
        (batch, anchors, 6): class, score and box, -1 behind the valid boxes; their number (batch,).
    """
    attrs = {"variances": tuple(map(float, variances)), "keep_background": bool(keep_background)}
    call = make_call(
        "vision.multibox_transform_loc", cls_prob, loc_pred, anchor,
        clip=bool(clip), threshold=threshold, **attrs,
    )  # fmt: skip
    return TupleWrapper(call, 2)


@type_rule("vision.multibox_transform_loc")
def infer_multibox_transform_loc(call: Inputs) -> Type:
    call.count(3)
    scores, offsets, anchors = call.tensor(0, 3), call.tensor(1, 2), call.tensor(2, 3)
    count = scores.shape[2]
    for got, wanted in ((anchors.shape[1], count), (anchors.shape[2], 4), (anchors.shape[0], 1)):
        if isinstance(got, int) and isinstance(wanted, int) and got != wanted:
            raise call.error(f"anchors {anchors}", f"(1, {count}, 4)")
    if isinstance(count, int) and offsets.shape[1] not in (count * 4, DynamicDim()):
        raise call.error(f"offsets {offsets}", f"4 for each of {count} anchors")
    found = TensorType((scores.shape[0], count, 6), scores.dtype)
    return TupleType([found, TensorType((scores.shape[0],), "int32")])


@expansion("vision.multibox_transform_loc")
def expand_multibox_transform_loc(call: Call, args: Sequence[Expr]) -> Expr:
    attrs, type_ = attrs_of(call), type_of(call, 0)
    batch, classes, count = type_.concrete_shape
    dtype, skipped = type_.dtype, 0 if attrs["keep_background"] else 1
    objects = plain(
        "strided_slice", args[0], begin=(skipped,), end=(classes,), strides=(1,), axes=(1,)
    )
    score = plain("max", objects, axis=(1,))
    kind = plain("argmax", objects, axis=(1,))
    valid = plain("greater_equal", score, const(attrs["threshold"], dtype))
    if attrs["keep_background"]:  # what is below the threshold becomes background
        kind = plain("where", valid, kind, const(0, "int32"))
        valid = plain("full", const(True, "bool"), shape=(batch, count), dtype="bool")
    boxes = _decoded(args[1], args[2], attrs["variances"], (batch, count, 4), dtype)
    if attrs["clip"]:
        boxes = plain("clip", boxes, a_min=0.0, a_max=1.0)
    numbers = [plain("expand_dims", n, axis=2) for n in (plain("cast", kind, dtype=dtype), score)]
    rows = plain("concatenate", Tuple([*numbers, boxes]), axis=2)
    number, found, _ = compacted(valid, rows, TensorType((batch, count, 6), dtype))
    return Tuple([found, number])


def _decoded(
    offsets: Expr, anchors: Expr, variances: Sequence[float], shape: tuple[int, ...], dtype: str
) -> Expr:
    """Move and scale anchors by offsets."""
    offset = plain("reshape", offsets, newshape=shape)
    factor = const(np.array(variances).reshape(1, 1, 4), dtype)
    offset = plain("multiply", offset, factor)
    low, high = (_half(anchors, side) for side in (0, 1))
    size = plain("subtract", high, low)
    center = plain("multiply", plain("add", low, high), const(0.5, dtype))
    moved = plain("add", plain("multiply", _half(offset, 0), size), center)
    half = plain("multiply", plain("exp", _half(offset, 1)), size)
    half = plain("multiply", half, const(0.5, dtype))
    return plain(
        "concatenate", Tuple([plain("subtract", moved, half), plain("add", moved, half)]), axis=2
    )


def _half(boxes: Expr, side: int) -> Expr:
    """Return numbers 0 and 1 of each box, or 2 and 3."""
    ends = {"begin": (2 * side,), "end": (2 * side + 2,), "strides": (1,), "axes": (2,)}
    return plain("strided_slice", boxes, **ends)


@builder("vision.proposal")
def proposal(
    cls_prob: Expr,
    bbox_pred: Expr,
    im_info: Expr,
    scales: Sequence[float],
    ratios: Sequence[float],
    feature_stride: int,
    threshold: float,
    rpn_pre_nms_top_n: int,
    rpn_post_nms_top_n: int,
    rpn_min_size: int,
    iou_loss: bool,
) -> Call:
    """Propose regions (Faster R-CNN).

    Args:
        cls_prob: (batch, 2 * anchors, h, w).
        bbox_pred: (batch, 4 * anchors, h, w).
        im_info: (batch, 3): height, width and scale of the images.
        scales, ratios: Of the anchors.
        feature_stride: The size of a place in the image.
        threshold: The overlap from which a box is suppressed.
        rpn_pre_nms_top_n, rpn_post_nms_top_n: How many boxes to look at, and to return.
        rpn_min_size: The smallest height and width.
        iou_loss: Offsets are those of corners.

    Returns:
        (batch * rpn_post_nms_top_n, 5): batch and box; fewer boxes are repeated.
    """
    return make_call(
        "vision.proposal", cls_prob, bbox_pred, im_info,
        scales=tuple(map(float, scales)), ratios=tuple(map(float, ratios)),
        feature_stride=feature_stride, threshold=threshold, rpn_pre_nms_top_n=rpn_pre_nms_top_n,
        rpn_post_nms_top_n=rpn_post_nms_top_n, rpn_min_size=rpn_min_size, iou_loss=bool(iou_loss),
    )  # fmt: skip


@type_rule("vision.proposal")
def infer_proposal(call: Inputs) -> Type:
    call.count(3)
    scores, offsets = call.tensor(0, 4), call.tensor(1, 4)
    call.tensor(2, 2)
    anchors = len(call.attrs["scales"]) * len(call.attrs["ratios"])
    for found, wanted in ((scores, 2 * anchors), (offsets, 4 * anchors)):
        if isinstance(found.shape[1], int) and found.shape[1] != wanted:
            raise call.error(f"{found} of {anchors} anchors", f"{wanted} channels")
    most, batch = call.attrs.get_int("rpn_post_nms_top_n"), scores.shape[0]
    rows: Dim = batch * most if isinstance(batch, int) else DynamicDim()
    return TensorType((rows, 5), scores.dtype)


@expansion("vision.proposal")
def expand_proposal(call: Call, args: Sequence[Expr]) -> Expr:
    attrs, type_ = attrs_of(call), type_of(call, 0)
    (batch, _, height, width), dtype = type_.concrete_shape, type_.dtype
    anchors = _anchors(attrs["scales"], attrs["ratios"], attrs.get_int("feature_stride"))
    total = height * width * len(anchors)
    boxes, scores = _regions(call, args, anchors)
    limit = attrs.get_int("rpn_pre_nms_top_n")
    limit = min(limit, total) if limit > 0 else total
    order = plain("argsort", scores, axis=1, is_ascend=False, dtype="int32")
    order = _columns(order, limit)
    scores = plain("gather", scores, order, axis=1)
    spread = plain("broadcast_to", plain("expand_dims", order, axis=2), shape=(batch, limit, 4))
    boxes = plain("gather", boxes, spread, axis=1)
    # Corners count as pixels: a box is one wider and higher than their distance.
    upper = plain("add", boxes, const([0, 0, 1, 1], dtype))
    # Descending scores over zero: boxes of equal scores keep their order.
    rank = const(np.broadcast_to(limit - np.arange(limit), (batch, limit)).copy(), dtype)
    data = plain("concatenate", Tuple([plain("expand_dims", rank, axis=2), upper]), axis=2)
    places = const(np.broadcast_to(np.arange(limit), (batch, limit)).copy(), "int32")
    kept, number = TupleWrapper(
        plain(
            "vision.non_max_suppression", data, const(np.full(batch, limit), "int32"), places,
            const(-1, "int32"), const(attrs["threshold"], "float32"), force_suppress=True,
            top_k=-1, coord_start=1, score_index=0, id_index=-1, return_indices=True,
            invalid_to_bottom=False,
        ),
        2,
    )  # fmt: skip
    most = attrs.get_int("rpn_post_nms_top_n")
    some = plain("maximum", plain("cast", number, dtype="int32"), const(1, "int32"))
    turn = plain("floor_mod", const(np.arange(most).reshape(1, most), "int32"), some)
    chosen = plain("gather", kept, turn, axis=1)
    chosen = plain("broadcast_to", plain("expand_dims", chosen, axis=2), shape=(batch, most, 4))
    found = plain("gather", boxes, chosen, axis=1)
    row = np.broadcast_to(np.arange(batch).reshape(batch, 1, 1), (batch, most, 1)).copy()
    result = plain("concatenate", Tuple([const(row, dtype), found]), axis=2)
    return plain("reshape", result, newshape=(batch * most, 5))


def _columns(values: Expr, count: int) -> Expr:
    return plain("strided_slice", values, begin=(0,), end=(count,), strides=(1,), axes=(1,))


def _anchors(scales: Sequence[float], ratios: Sequence[float], base: int) -> np.ndarray:
    """Return the corners of the anchors at the first place, in pixels."""
    center, rows = 0.5 * (base - 1.0), []
    for ratio in ratios:
        for scale in scales:
            width = math.floor(math.sqrt(math.floor(base * base / ratio)) + 0.5) * scale
            height = math.floor(width / scale * ratio + 0.5) * scale
            x, y = 0.5 * (width - 1.0), 0.5 * (height - 1.0)
            rows.append((center - x, center - y, center + x, center + y))
    return np.array(rows)


def _regions(call: Call, args: Sequence[Expr], anchors: np.ndarray) -> tuple[Expr, Expr]:
    """Return boxes (batch, n, 4) and scores (batch, n), places first and anchors last."""
    attrs, type_ = attrs_of(call), type_of(call, 0)
    (batch, _, height, width), dtype = type_.concrete_shape, type_.dtype
    stride, count = attrs.get_int("feature_stride"), len(anchors)
    total = height * width * count
    y, x = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    shift = np.stack([x, y, x, y], axis=-1).reshape(height, width, 1, 4) * stride
    corners = (shift + anchors).reshape(1, total, 4)
    offsets = plain("reshape", args[1], newshape=(batch, count, 4, height, width))
    offsets = plain("transpose", offsets, axes=(0, 3, 4, 1, 2))
    offsets = plain("reshape", offsets, newshape=(batch, total, 4))
    boxes = _regressed(corners, offsets, attrs["iou_loss"], dtype)
    info = [_columns_of(args[2], i) for i in range(3)]  # (batch, 1) each
    one = const(1, dtype)
    limits = [plain("subtract", info[i], one) for i in (1, 0, 1, 0)]
    limit = plain("stack", Tuple(limits), axis=2)
    boxes = plain("maximum", plain("minimum", boxes, limit), const(0, dtype))
    scores = plain("strided_slice", args[0], begin=(count,), end=(2 * count,), strides=(1,),
                   axes=(1,))  # fmt: skip
    scores = plain(
        "reshape", plain("transpose", scores, axes=(0, 2, 3, 1)), newshape=(batch, total)
    )
    # Places beyond the image, and boxes that are too small, come last.
    inside = None
    for axis, places in enumerate((y, x)):
        size = plain("divide", info[axis], const(stride, dtype))
        size = plain("cast", size, dtype="int32")
        place = np.repeat(places.reshape(-1), count).reshape(1, total)
        less = plain("less", const(place, "int32"), size)
        inside = less if inside is None else plain("logical_and", inside, less)
    assert inside is not None
    least = plain("multiply", info[2], const(attrs.get_int("rpn_min_size"), dtype))
    extent = plain("add", plain("subtract", _half(boxes, 1), _half(boxes, 0)), one)
    small = plain("less", plain("min", extent, axis=(2,)), least)
    grow = plain(
        "multiply", plain("expand_dims", least, axis=2), const([-0.5, -0.5, 0.5, 0.5], dtype)
    )
    spread = plain("expand_dims", small, axis=2)
    boxes = plain("where", spread, plain("add", boxes, grow), boxes)
    valid = plain("logical_and", inside, plain("logical_not", small))
    return boxes, plain("where", valid, scores, const(-1, dtype))


def _columns_of(matrix: Expr, place: int) -> Expr:
    ends = {"begin": (place,), "end": (place + 1,), "strides": (1,), "axes": (1,)}
    return plain("strided_slice", matrix, **ends)


def _regressed(corners: np.ndarray, offsets: Expr, iou_loss: bool, dtype: str) -> Expr:
    """Move corners, or centers and sizes, by offsets."""
    if iou_loss:
        return plain("add", const(corners, dtype), offsets)
    size = corners[..., 2:] - corners[..., :2] + 1
    center = corners[..., :2] + 0.5 * (size - 1)
    moved = plain("add", plain("multiply", _half(offsets, 0), const(size, dtype)),
                  const(center, dtype))  # fmt: skip
    scaled = plain("multiply", plain("exp", _half(offsets, 1)), const(size, dtype))
    half = plain("multiply", plain("subtract", scaled, const(1, dtype)), const(0.5, dtype))
    return plain(
        "concatenate", Tuple([plain("subtract", moved, half), plain("add", moved, half)]), axis=2
    )


@builder("vision.yolo_reorg")
def yolo_reorg(data: Expr, stride: int) -> Call:
    """Rearrange (b, c, h, w) to (b, c * stride^2, h / stride, w / stride), as Darknet does."""
    return make_call("vision.yolo_reorg", data, stride=stride)


@type_rule("vision.yolo_reorg")
def infer_yolo_reorg(call: Inputs) -> Type:
    call.count(1)
    data, stride = call.tensor(0, 4), call.attrs.get_int("stride")
    if stride < 1:
        raise call.error(f"stride={stride}", "at least 1")
    batch, channels, *places = data.shape
    sizes = [computed(lambda n: n * stride * stride, channels)]
    sizes += [computed(lambda n: n // stride, p) for p in places]
    return TensorType((batch, *sizes), data.dtype)


@converter("vision.yolo_reorg")
def convert_yolo_reorg(op: OpCall) -> RelaxExpr:
    return op.te(topi.cpp.vision.reorg, op.args[0], op.attrs.get_int("stride"))
