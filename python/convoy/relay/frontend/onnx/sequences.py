"""Sequences and optional values, which are resolved while the model is converted."""

from __future__ import annotations

from typing import Any

import numpy as np

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import (
    concatenate,
    const,
    infer_shape,
    select,
    slice_axis,
    unsqueeze,
)
from convoy.relay.frontend.onnx.graph import Listed
from convoy.relay.frontend.onnx.registry import Node, convert


@convert("SequenceConstruct")
def construct(node: Node) -> Listed:
    return Listed(node.inputs)


@convert("SequenceEmpty")
def empty(node: Node) -> Listed:
    return Listed()


@convert("SequenceInsert")
def insert(node: Node) -> Listed:
    items = Listed(node.get(0))
    items.insert(_place(node, 2, len(items)), node[1])
    return items


@convert("SequenceErase")
def erase(node: Node) -> Listed:
    items = Listed(node.get(0))
    del items[_place(node, 1, len(items) - 1)]
    return items


def _place(node: Node, index: int, default: int) -> int:
    return default if node.get(index) is None else node.ints(index)[0]


@convert("SequenceAt")
def at(node: Node) -> Any:
    items = node.get(0)
    place = node.ints(1)[0]
    if not -len(items) <= place < len(items):
        raise node.error(f"element {place} of {len(items)}")
    return items[place]


@convert("SequenceLength")
def length(node: Node) -> Expr:
    return const(np.asarray(len(node.get(0)), "int64"))


@convert("ConcatFromSequence")
def concat(node: Node) -> Expr:
    axis = node.attrs["axis"]
    parts = list(node.get(0))
    if node.attr("new_axis", 0):
        parts = [unsqueeze(p, [axis]) for p in parts]
    return concatenate(parts, axis)


@convert("SplitToSequence")
def split(node: Node) -> Listed:
    axis = node.axis(node.attr("axis", 0))
    total = infer_shape(node[0])[axis]
    if node.get(1) is None:
        keep = node.attr("keepdims", 1)
        return Listed(
            slice_axis(node[0], axis, i, i + 1) if keep else select(node[0], axis, i)
            for i in range(total)
        )
    value = node.value(1)
    if value.ndim == 0:
        each = int(value)
        sizes = [min(each, total - at) for at in range(0, total, each)]
    else:
        sizes = [int(v) for v in value]
    ends = np.cumsum(sizes)
    return Listed(
        slice_axis(node[0], axis, int(e - s), int(e)) for s, e in zip(sizes, ends, strict=True)
    )


@convert("Optional")
def optional(node: Node) -> Any:
    return node.get(0)


@convert("OptionalGetElement")
def get_element(node: Node) -> Any:
    return node.get(0)


@convert("OptionalHasElement")
def has_element(node: Node) -> Expr:
    return const(np.asarray(node.get(0) is not None))
