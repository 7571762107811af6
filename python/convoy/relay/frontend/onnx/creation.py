"""New tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import const, value_of
from convoy.relay.frontend.onnx.registry import Node, convert
from convoy.relay.op import tensor as R


@convert("Constant")
def constant(node: Node) -> Expr:
    """Make a constant of one of the attributes that may hold it.

    Raises:
        UnsupportedOp: Text.
    """
    (name, value), *_ = node.attrs.items()
    if name.startswith("value_string"):
        raise node.error("text", "numbers")
    if name in ("value_float", "value_floats"):
        value = np.asarray(value, "float32")
    elif name in ("value_int", "value_ints"):
        value = np.asarray(value, "int64")
    array = np.asarray(value)
    if array.dtype.kind in "OSU":
        raise node.error("text", "numbers")
    return const(array)


@convert("ConstantOfShape")
def constant_of_shape(node: Node) -> Expr:
    value = np.asarray(node.attr("value", np.zeros(1, "float32"))).reshape(-1)[0]
    return R.full(const(value), tuple(node.ints(0)), value.dtype.name)


@convert("Range")
def convert_range(node: Node) -> Expr:
    start, stop, step = (node.value(i).reshape(-1)[0] for i in range(3))
    return const(np.arange(start, stop, step, dtype=node.dtype()))


@convert("EyeLike")
def eye_like(node: Node) -> Expr:
    from onnx import helper

    dtype: Any = node.dtype()
    if "dtype" in node.attrs:
        dtype = helper.tensor_dtype_to_np_dtype(node.attrs["dtype"])
    rows, columns = node.shape()
    return const(np.eye(rows, columns, node.attr("k", 0)).astype(dtype))


@convert("Dropout")
def dropout(node: Node) -> Any:
    """Give the input back, as inference does; the mask is all true.

    Raises:
        UnsupportedOp: Training mode with a rate above 0.
    """
    training = node.get(2)
    rate = node.number(1, 0.5) if training is not None else 0.0
    if training is not None and rate:
        value = value_of(training)
        if value is None or bool(value):
            raise node.error("training_mode", "inference", "Export the network in eval mode")
    dtype = "bool" if node.opset >= 10 else node.dtype()
    return [node[0], const(np.ones(node.shape(), dtype))] if node.wants(1) else node[0]


@convert(
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial",
    "Bernoulli",
)  # fmt: skip
def random(node: Node) -> Expr:
    raise node.error("random numbers", "a network without", "Make them an input of the network")
