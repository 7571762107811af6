"""Activations, softmax and its relatives."""

from __future__ import annotations

import math

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import dims, infer_shape, reshape, scalar, scalar_like
from convoy.relay.frontend.elementwise import elu, gelu, hard_sigmoid, prelu, softplus
from convoy.relay.frontend.onnx.registry import Node, convert
from convoy.relay.op import nn
from convoy.relay.op import tensor as R


@convert("Relu")
def relu(node: Node) -> Expr:
    return nn.relu(node[0])


@convert("LeakyRelu")
def leaky_relu(node: Node) -> Expr:
    return nn.leaky_relu(node[0], node.attr("alpha", 0.01))


@convert("PRelu")
def convert_prelu(node: Node) -> Expr:
    return prelu(node[0], node[1])


@convert("Elu")
def convert_elu(node: Node) -> Expr:
    return elu(node[0], node.attr("alpha", 1.0))


@convert("Selu")
def selu(node: Node) -> Expr:
    return elu(node[0], node.attr("alpha", 1.67326319), node.attr("gamma", 1.05070102))


@convert("HardSigmoid")
def convert_hard_sigmoid(node: Node) -> Expr:
    return hard_sigmoid(node[0], node.attr("alpha", 0.2), node.attr("beta", 0.5))


@convert("HardSwish")
def hard_swish(node: Node) -> Expr:
    return R.multiply(node[0], hard_sigmoid(node[0], 1 / 6, 0.5))


@convert("Softplus")
def convert_softplus(node: Node) -> Expr:
    return softplus(node[0])


@convert("Softsign")
def softsign(node: Node) -> Expr:
    return R.divide(node[0], R.add(scalar_like(1, node[0]), R.abs(node[0])))


@convert("ThresholdedRelu")
def thresholded_relu(node: Node) -> Expr:
    bound = scalar_like(node.attr("alpha", 1.0), node[0])
    return R.where(R.greater(node[0], bound), node[0], scalar_like(0, node[0]))


@convert("Gelu")
@convert("Gelu", domain="com.microsoft")
def convert_gelu(node: Node) -> Expr:
    return gelu(node[0], node.attr("approximate", "none") == "tanh")


@convert("FastGelu", domain="com.microsoft")
def fast_gelu(node: Node) -> Expr:
    data = node[0] if node.get(1) is None else R.add(node[0], node[1])
    return gelu(data, True)


@convert("Softmax", "LogSoftmax")
def flat_softmax(node: Node) -> Expr:
    """Normalize over all axes from `axis` on, as before opset 13."""
    function = nn.softmax if node.name == "Softmax" else nn.log_softmax
    axis = node.axis(node.attr("axis", 1))
    if axis == node.rank() - 1:
        return function(node[0], axis=axis)
    shape = node.shape()
    flat = reshape(node[0], (math.prod(shape[:axis]), math.prod(shape[axis:])))
    return reshape(function(flat, axis=1), shape)


@convert("Softmax", "LogSoftmax", since=13)
def softmax(node: Node) -> Expr:
    function = nn.softmax if node.name == "Softmax" else nn.log_softmax
    return function(node[0], axis=node.axis(node.attr("axis", -1)))


@convert("Hardmax")
def hardmax(node: Node) -> Expr:
    """Put 1 at the first maximum of an axis, 0 elsewhere."""
    old = node.opset < 13
    axis = node.axis(node.attr("axis", 1 if old else -1))
    data, shape = node[0], infer_shape(node[0])
    if old:
        data = reshape(data, (math.prod(shape[:axis]), math.prod(shape[axis:])))
        axis = 1
    place = R.argmax(data, axis=axis)
    one, zero = (scalar(n, node.dtype()) for n in (1, 0))
    depth = dims(data)[axis]
    return reshape(R.one_hot(place, one, zero, depth, axis, node.dtype()), shape)
