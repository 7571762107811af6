"""Joining and splitting."""

from __future__ import annotations

import numpy as np

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import concatenate, dims, slice_axis
from convoy.relay.frontend.onnx.registry import Node, convert
from convoy.relay.op import tensor as R


@convert("Concat")
def concat(node: Node) -> Expr:
    """Join; empty parts are left out, of which older exporters make some."""
    axis = node.axis(node.attr("axis", 1))
    parts = [p for p in node.inputs if dims(p)[axis] != 0] or node.inputs[:1]
    return concatenate(parts, axis)


@convert("Split")
def split(node: Node) -> list[Expr]:
    """Split evenly (the last part may be smaller), or in sizes that are an attribute or input."""
    axis = node.axis(node.attr("axis", 0))
    total = node.shape()[axis]
    sizes = node.ints_of("split", 1)
    if sizes is None:
        count = node.attr("num_outputs", len(node.outputs))
        each = -(-total // count)
        sizes = [max(0, min(each, total - i * each)) for i in range(count)]
    if len(sizes) == 1:
        return [node[0]]
    if 0 in sizes:
        ends = np.cumsum(sizes)
        return [
            slice_axis(node[0], axis, int(e - s), int(e)) for s, e in zip(sizes, ends, strict=True)
        ]
    if len(set(sizes)) == 1:
        return list(R.split(node[0], len(sizes), axis=axis))
    return list(R.split(node[0], [int(e) for e in np.cumsum(sizes)[:-1]], axis=axis))
