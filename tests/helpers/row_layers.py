"""Layers of random networks whose values are rows of channels, float32.

Each takes the network, the value that it follows, and the images before it, of which it takes none.
"""

from __future__ import annotations

from tvm import relax

from .growing import Growing, number, shape


def dense(net: Growing, x: relax.Var, images: list[relax.Var]) -> relax.Var:
    units, c = net.rng.choice(net.channels), shape(x)[1]
    y = net.emit(relax.op.matmul(x, net.constant(c, units, fan=c)))
    if net.rng.random() < 0.6:
        y = net.emit(relax.op.add(y, net.constant(units, fan=4)))
    return net.activate(y) if net.rng.random() < 0.5 else y


def normalize(net: Growing, x: relax.Var, images: list[relax.Var]) -> relax.Var:
    c, draw = shape(x)[1], net.rng.random()
    if draw < 0.3:
        return net.emit(relax.op.nn.softmax(x, axis=-1))
    if draw < 0.6:
        mean = net.emit(relax.op.mean(net.emit(relax.op.square(x)), [-1], keepdims=True))
        scale = net.emit(relax.op.rsqrt(net.emit(relax.op.add(mean, number(1e-5)))))
        scaled = net.emit(relax.op.multiply(x, scale))
        return net.emit(relax.op.multiply(scaled, net.constant(c, fan=9, around=1)))
    gamma, beta = net.constant(c, fan=9, around=1), net.constant(c, fan=4)
    return net.emit(relax.op.nn.layer_norm(x, gamma, beta, axes=[-1]))


def attention(net: Growing, x: relax.Var, images: list[relax.Var]) -> relax.Var:
    c = shape(x)[1]
    q, k, v = (net.emit(relax.op.matmul(x, net.constant(c, c, fan=c))) for _ in range(3))
    heads = net.rng.choice((1, 2))
    if heads > 1:
        q, k, v = (heads_of(net, part, heads) for part in (q, k, v))
    axes = [0, 2, 1] if heads > 1 else [1, 0]
    scores = net.emit(relax.op.matmul(q, net.emit(relax.op.permute_dims(k, axes))))
    scaled = net.emit(relax.op.multiply(scores, number((c / heads) ** -0.5)))
    if net.rng.random() < 0.4:
        bias = net.constant(*shape(scaled)[:-2], *[shape(scaled)[-1]] * 2)
        scaled = net.emit(relax.op.add(scaled, bias))
    y = net.emit(relax.op.matmul(net.emit(relax.op.nn.softmax(scaled)), v))
    if heads > 1:
        y = net.emit(relax.op.reshape(net.emit(relax.op.permute_dims(y, [1, 0, 2])), shape(x)))
    return net.emit(relax.op.add(x, y)) if net.rng.random() < 0.5 else y


def heads_of(net: Growing, x: relax.Var, heads: int) -> relax.Var:
    rows, c = shape(x)
    apart = net.emit(relax.op.reshape(x, (rows, heads, c // heads)))
    return net.emit(relax.op.permute_dims(apart, [1, 0, 2]))


def gated(net: Growing, x: relax.Var, images: list[relax.Var]) -> relax.Var:
    """Two products of one tensor, one of them the gate, and a third one back."""
    c = shape(x)[1]
    gate, y = (net.emit(relax.op.matmul(x, net.constant(c, 2 * c, fan=c))) for _ in range(2))
    y = net.emit(relax.op.multiply(net.activate(gate), y))
    y = net.emit(relax.op.matmul(y, net.constant(2 * c, c, fan=2 * c)))
    return net.emit(relax.op.add(x, y)) if net.rng.random() < 0.5 else y


ROW_LAYERS = (dense, dense, normalize, attention, gated)
