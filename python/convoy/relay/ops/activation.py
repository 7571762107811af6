"""Activations, softmax and dropout."""

from __future__ import annotations

import numpy as np

from convoy.relay.ast import Call, Expr, TupleGetItem, TupleWrapper
from convoy.relay.lazy import relax
from convoy.relay.ops.arguments import make_call
from convoy.relay.ops.normalization import along, axis_of, infer_vector_along_axis
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.types import TupleType, Type


@builder("nn.relu")
def relu(data: Expr) -> Call:
    """Compute max(data, 0)."""
    return make_call("nn.relu", data)


@type_rule("nn.relu", "nn.leaky_relu", "clip", "hardswish")
def infer_activation(call: Inputs) -> Type:
    call.count(1)
    return call.tensor(0)


@converter("nn.relu")
def convert_relu(op: OpCall) -> RelaxExpr:
    return relax.op.nn.relu(op.args[0])


@builder("nn.leaky_relu")
def leaky_relu(data: Expr, alpha: float = 0.01) -> Call:
    """Compute data where it is positive, alpha * data elsewhere."""
    return make_call("nn.leaky_relu", data, alpha=alpha)


@converter("nn.leaky_relu")
def convert_leaky_relu(op: OpCall) -> RelaxExpr:
    return relax.op.nn.leakyrelu(op.args[0], alpha=op.attrs["alpha"])


@builder("nn.prelu")
def prelu(data: Expr, alpha: Expr, axis: int = 1) -> Call:
    """Compute data where it is positive, alpha * data elsewhere, with an alpha per channel.

    Args:
        alpha: A vector along `axis`.
    """
    return make_call("nn.prelu", data, alpha, axis=axis)


type_rule("nn.prelu")(infer_vector_along_axis)


@converter("nn.prelu")
def convert_prelu(op: OpCall) -> RelaxExpr:
    data = op.args[0]
    slope = op.emit(relax.op.multiply(data, along(op, op.args[1], axis_of(op))))
    positive = op.emit(relax.op.greater(data, op.const(0, op.type(0).dtype)))
    return relax.op.where(positive, data, slope)


@builder("clip")
def clip(a: Expr, a_min: float, a_max: float) -> Call:
    """Clip to [a_min, a_max]."""
    return make_call("clip", a, a_min=a_min, a_max=a_max)


@converter("clip")
def convert_clip(op: OpCall) -> RelaxExpr:
    """Emit a clip; bounds beyond the range of an integer type become its limits."""
    low, high = op.attrs["a_min"], op.attrs["a_max"]
    dtype = op.type(0).dtype
    if "int" in dtype:
        info = np.iinfo(dtype)
        low, high = int(max(low, info.min)), int(min(high, info.max))
    return relax.op.clip(op.args[0], low, high)


@builder("nn.softmax")
def softmax(data: Expr, axis: int = -1) -> Call:
    """Compute exp(data) / sum(exp(data)) along an axis."""
    return make_call("nn.softmax", data, axis=axis)


@builder("nn.fast_softmax")
def fast_softmax(data: Expr, axis: int = -1) -> Call:
    """Compute `softmax`; TVM 0.18 approximates exp here, Convoy does not."""
    return make_call("nn.fast_softmax", data, axis=axis)


@builder("nn.log_softmax")
def log_softmax(data: Expr, axis: int = -1) -> Call:
    """Compute log(softmax(data)) along an axis."""
    return make_call("nn.log_softmax", data, axis=axis)


@type_rule("nn.softmax", "nn.log_softmax", "nn.fast_softmax")
def infer_softmax(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    call.axis(call.attrs.get_int("axis"), len(data.shape))
    return data


@converter("nn.softmax", "nn.fast_softmax")
def convert_softmax(op: OpCall) -> RelaxExpr:
    return relax.op.nn.softmax(op.args[0], axis=axis_of(op))


@converter("nn.log_softmax")
def convert_log_softmax(op: OpCall) -> RelaxExpr:
    return relax.op.nn.log_softmax(op.args[0], axis=axis_of(op))


@builder("nn.dropout")
def dropout(data: Expr, rate: float = 0.5) -> TupleGetItem:
    """Return the data: dropout is the identity at inference."""
    return dropout_raw(data, rate)[0]


@builder("nn.dropout_raw")
def dropout_raw(data: Expr, rate: float = 0.5) -> TupleWrapper:
    """Return (data, mask); see `dropout`."""
    return TupleWrapper(make_call("nn.dropout", data, rate=rate), 2)


@type_rule("nn.dropout")
def infer_dropout(call: Inputs) -> Type:
    """Infer (data, mask)."""
    call.count(1)
    data = call.tensor(0)
    return TupleType([data, data])


@converter("nn.dropout")
def convert_dropout(op: OpCall) -> RelaxExpr:
    """Return the data and a mask of ones."""
    data = op.args[0]
    return relax.Tuple([data, op.emit(relax.op.ones_like(data))])
