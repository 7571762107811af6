"""Quantised operators. Scales and zero points do not count for the types."""

from __future__ import annotations

from convoy.relay.infer.nn_conv import conv2d, conv2d_transpose
from convoy.relay.infer.nn_dense import batch_matmul as plain_batch_matmul
from convoy.relay.infer.nn_dense import dense as plain_dense
from convoy.relay.infer.nn_pool import pool2d as plain_pool
from convoy.relay.infer.rules import Inputs, Rule, broadcast, rule
from convoy.relay.infer.shape import concatenate as plain_concatenate
from convoy.relay.types import TensorType, Type

_UNARY = "abs erf exp hardswish log rsqrt sigmoid sqrt tanh softmax leaky_relu"


def _first(call: Inputs, count: int, plain: Rule) -> Type:
    """The type of a plain operator on the first arguments."""
    inner = Inputs(call.call, call.types[:count])
    result = plain(inner)
    call.assigned.update(inner.assigned)
    return result


@rule("qnn.quantize", "qnn.dequantize")
def quantize(call: Inputs) -> Type:
    call.count(3)
    return TensorType(call.tensor(0).shape, call.out_dtype("float32"))


@rule("qnn.requantize")
def requantize(call: Inputs) -> Type:
    call.count(5)
    return TensorType(call.tensor(0).shape, call.out_dtype("int8"))


@rule("qnn.conv2d")
def qnn_conv2d(call: Inputs) -> Type:
    call.count(6)
    return _first(call, 2, conv2d)


@rule("qnn.conv2d_transpose")
def qnn_conv2d_transpose(call: Inputs) -> Type:
    call.count(6)
    return _first(call, 2, conv2d_transpose)


@rule("qnn.dense")
def dense(call: Inputs) -> Type:
    call.count(6)
    return _first(call, 2, plain_dense)


@rule("qnn.batch_matmul")
def batch_matmul(call: Inputs) -> Type:
    call.count(6)
    return _first(call, 2, plain_batch_matmul)


@rule("qnn.add", "qnn.mul", "qnn.subtract")
def binary(call: Inputs) -> Type:
    call.count(8)
    lhs, rhs = call.tensor(0), call.tensor(1)
    shape = broadcast(lhs.shape, rhs.shape)
    if shape is None or lhs.dtype != rhs.dtype:
        raise call.error(f"operands of types {lhs} and {rhs}", "one dtype, shapes that broadcast")
    return TensorType(shape, lhs.dtype)


@rule("qnn.concatenate")
def concatenate(call: Inputs) -> Type:
    call.count(5)
    return _first(call, 1, plain_concatenate)


@rule("qnn.avg_pool2d")
def avg_pool2d(call: Inputs) -> Type:
    call.count(5)
    return _first(call, 1, plain_pool)


@rule(*(f"qnn.{name}" for name in _UNARY.split()))
def unary(call: Inputs) -> Type:
    call.count(5)
    return call.tensor(0)
