"""Squeeze-and-excitation blocks for small networks built with Relax."""

from __future__ import annotations

from tvm import relax
from tvm.relax import op

from ..graph.nets import Net


def activated(net: Net, x: relax.Var, activation: str) -> relax.Var:
    """The activation of a tensor; hard sigmoid as PyTorch has it."""
    if activation == "none":
        return x
    if activation == "hardsigmoid":
        return net.emit(op.clip(net.emit(op.add(x, relax.const(0.5, net.dtype))), 0, 1))
    functions = {
        "relu": op.nn.relu,
        "silu": op.nn.silu,
        "gelu": op.nn.gelu,
        "tanh": op.tanh,
        "sigmoid": op.sigmoid,
        "clip": lambda value: op.clip(value, 0, 1),
    }
    return net.emit(functions[activation](x))


def gates(
    net: Net, x: relax.Var, squeezed: int, squeeze: str = "relu", gate: str = "sigmoid",
    bias: bool = True,
) -> relax.Var:  # fmt: skip
    """The gates of the channels of an image in NCHW, of two 1x1 convolutions of its mean."""
    mean = net.emit(op.mean(x, [2, 3], keepdims=True))
    inner = activated(net, net.conv(mean, squeezed, 1, bias=bias), squeeze)
    return activated(net, net.conv(inner, net.channels(x), 1, bias=bias), gate)


def dense_gates(net: Net, x: relax.Var, squeezed: int, keepdims: bool = False) -> relax.Var:
    """The gates of two linear layers, as a vector of each image; of a pooled image or a mean."""
    n, c = int(x.ty.shape.values[0]), net.channels(x)
    if keepdims:
        mean = net.emit(op.nn.adaptive_avg_pool2d(x, (1, 1), layout=net.layout))
        mean = net.emit(op.reshape(mean, (n, c)))
    else:
        mean = net.emit(op.mean(x, [2, 3]))
    inner = net.relu(linear(net, mean, squeezed))
    return net.emit(op.sigmoid(linear(net, inner, c)))


def linear(net: Net, x: relax.Var, k: int) -> relax.Var:
    """A linear layer with a bias."""
    weights = net.const(k, int(x.ty.shape.values[-1]))
    y = net.emit(op.matmul(x, net.emit(op.permute_dims(weights))))
    return net.add(y, net.const(k))


def block(
    net: Net, x: relax.Var, squeezed: int, squeeze: str = "relu", gate: str = "sigmoid",
    bias: bool = True,
) -> relax.Var:  # fmt: skip
    """An image times its gates."""
    return net.emit(op.multiply(x, gates(net, x, squeezed, squeeze, gate, bias)))
