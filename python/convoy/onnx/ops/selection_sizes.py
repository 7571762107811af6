"""Sizes that depend on how many elements of a mask are true."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..call import Call, Value
from ..selected import COUNT, Selected, Sizes

if TYPE_CHECKING:
    import onnx

#: Operators that move sizes.
_MOVING = ("Concat", "Gather", "Identity", "Slice", "Squeeze", "Unsqueeze", "Where")


def of_sizes(call: Call, first: Selected | Sizes) -> Value:
    """The value of a call of sizes. They are moved, and compared with -1, which is no size."""
    arrays = [value.array if isinstance(value, Sizes) else value for value in call.inputs]
    if not all(isinstance(array, np.ndarray) for array in arrays):
        return None
    if call.op == "Shape":
        return np.array(arrays[0].shape, "int64")
    if call.op in ("Gather", "Slice") and not isinstance(call.inputs[0], Sizes):
        return None
    negative = [(array < 0).all() for array in arrays if COUNT not in array]
    if call.op not in _MOVING and not (call.op == "Equal" and negative == [True]):
        return None
    found = call.importer.call(replace(call, inputs=arrays))
    return Sizes(first.mask, found, first.error) if COUNT in found else found


def counted(call: Call) -> Sizes | None:
    """The shape of an Expand that is computed from the number of true elements of a mask, as
    PyTorch's newer exporter counts them; None where it is computed otherwise."""
    if len(call.sources) < 2 or not call.builder.is_expr(call.inputs[1]):
        return None
    error = next((one.error for one in call.scope.values() if isinstance(one, Selected)), None)
    if error is None:
        return None
    nodes = producers(call)
    node = nodes.get(call.sources[1])
    parts = node.input if node is not None and node.op_type == "Concat" else call.sources[1:2]
    sizes, mask = [], None
    for name in parts:
        known = call.scope.get(name)
        if isinstance(known, np.ndarray):
            sizes.append(known.reshape(-1))
        elif mask is None and (source := _summed(nodes, name)) is not None:
            if math.prod(call.builder.dims(known)) != 1:  # not of all elements
                return None
            mask = call.scope.get(source)
            sizes.append(np.array([COUNT]))
        else:
            return None
    if mask is None or call.do_dtype(mask).kind != "b":
        return None
    return Sizes(mask, np.concatenate(sizes), error)


def producers(call: Call) -> dict[str, onnx.NodeProto]:
    """Nodes of the model by the names of their results."""
    return {name: node for node in call.importer.model.graph.node for name in node.output}


def unexpanded(call: Call, source: str) -> Any:
    """The mask of leading axes that a mask repeats along further ones; None where there is none."""
    nodes = producers(call)
    for op in ("Expand", "Unsqueeze"):
        node = nodes.get(source)
        if node is None or node.op_type != op:
            return None
        source = node.input[0]
    return call.scope.get(source)


def _summed(nodes: Mapping[str, onnx.NodeProto], name: str) -> str | None:
    """The tensor whose elements a ReduceSum of a Cast of a Reshape adds up."""
    for op in ("ReduceSum", "Cast", "Reshape"):
        node = nodes.get(name)
        if node is None or node.op_type != op:
            return None
        name = node.input[0]
    return name
