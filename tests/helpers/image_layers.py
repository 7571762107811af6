"""Layers of random networks whose values are images, float32 and NCHW.

Each takes the network, the value that it follows, and all images before it.
"""

from __future__ import annotations

from tvm import relax

from .growing import Growing, number, shape


def convolution(net: Growing, x: relax.Var, images: list[relax.Var]) -> relax.Var:
    _, c, h, _ = shape(x)
    size, channels = net.rng.choice((1, 1, 3, 3, 5)), net.rng.choice(net.channels)
    groups = net.rng.choice((1, 1, 1, 2, c))
    stride = net.rng.choice((1, 1, 2)) if h == net.size else 1
    dilation = net.rng.choice((1, 1, 2)) if size == 3 else 1
    pad = size // 2 * dilation
    if groups == c:
        channels = c
    weight = net.constant(channels, c // groups, size, size, fan=c // groups * size * size)
    y = net.emit(
        relax.op.nn.conv2d(x, weight, strides=stride, padding=pad, dilation=dilation, groups=groups)
    )
    if net.rng.random() < 0.6:
        y = net.emit(relax.op.add(y, net.constant(1, channels, 1, 1, fan=4)))
    if net.rng.random() < 0.3:
        y = net.emit(relax.op.multiply(y, net.constant(1, channels, 1, 1, fan=9, around=1)))
    if net.rng.random() < 0.3 and (other := net.like(y, images)) is not None:
        y = net.emit(relax.op.add(y, other))
    return net.activate(y) if net.rng.random() < 0.6 else y


def transposed(net: Growing, x: relax.Var, images: list[relax.Var]) -> relax.Var:
    _, c, h, _ = shape(x)
    if h >= net.size:
        return net.activate(x)
    weight = net.constant(c, c, 2, 2, fan=c)
    return net.emit(relax.op.nn.conv2d_transpose(x, weight, strides=2))


def pool(net: Growing, x: relax.Var, images: list[relax.Var]) -> relax.Var:
    kind = net.rng.choice((relax.op.nn.max_pool2d, relax.op.nn.avg_pool2d))
    stride = net.rng.choice((1, 2)) if shape(x)[2] == net.size else 1
    return net.emit(kind(x, pool_size=(3, 3), strides=(stride, stride), padding=(1, 1)))


def combine(net: Growing, x: relax.Var, images: list[relax.Var]) -> relax.Var:
    other = net.like(x, images)
    kind = net.rng.choice((relax.op.add, relax.op.multiply, relax.op.subtract, relax.op.maximum))
    return net.emit(kind(x, x if other is None else other))


def concatenate(net: Growing, x: relax.Var, images: list[relax.Var]) -> relax.Var:
    sizes = shape(x)
    others = [y for y in images if shape(y)[2:] == sizes[2:] and shape(y)[1] + sizes[1] <= 48]
    if not others:
        return net.activate(x)
    parts = [x, net.rng.choice(others)]
    net.rng.shuffle(parts)
    joined = net.emit(relax.op.concat(parts, axis=1))
    channels = net.rng.choice(net.channels)
    weight = net.constant(channels, shape(joined)[1], 1, 1, fan=shape(joined)[1])
    return net.emit(relax.op.nn.conv2d(joined, weight))


def split(net: Growing, x: relax.Var, images: list[relax.Var]) -> relax.Var:
    halves = net.emit(relax.op.split(x, 2, axis=1))
    first, second = (net.emit(relax.TupleGetItem(halves, i)) for i in range(2))
    weight = net.constant(shape(x)[1], shape(first)[1], 1, 1, fan=shape(first)[1])
    return net.emit(relax.op.nn.conv2d(net.emit(relax.op.multiply(first, second)), weight))


def channel_attention(net: Growing, x: relax.Var, images: list[relax.Var]) -> relax.Var:
    c = shape(x)[1]
    mean = net.emit(relax.op.mean(x, axis=[2, 3], keepdims=True))
    gate = net.emit(relax.op.nn.conv2d(mean, net.constant(c, c, 1, 1, fan=c)))
    return net.emit(relax.op.multiply(x, net.emit(relax.op.sigmoid(gate))))


def channel_norm(net: Growing, x: relax.Var, images: list[relax.Var]) -> relax.Var:
    """A layer norm of each pixel's channels, or a group norm; scaled or added to its input."""
    c = shape(x)[1]
    gamma, beta = net.constant(c, fan=9, around=1), net.constant(c, fan=4)
    if net.rng.random() < 0.5:
        last = net.emit(relax.op.permute_dims(x, [0, 2, 3, 1]))
        y = net.emit(relax.op.nn.layer_norm(last, gamma, beta, axes=[-1]))
        y = net.emit(relax.op.permute_dims(y, [0, 3, 1, 2]))
    else:
        y = net.emit(relax.op.nn.group_norm(x, gamma, beta, 2, 1, [2, 3]))
    if net.rng.random() < 0.4:
        y = net.emit(relax.op.multiply(y, net.constant(c, 1, 1, fan=4)))
    return net.emit(relax.op.add(x, y)) if net.rng.random() < 0.4 else y


def response_norm(net: Growing, x: relax.Var, images: list[relax.Var]) -> relax.Var:
    """Channels by their share of the energy."""
    energy = net.emit(relax.op.sum(net.emit(relax.op.square(x)), [2, 3], keepdims=True))
    size = net.emit(relax.op.sqrt(energy))
    mean = net.emit(relax.op.mean(size, [1], keepdims=True))
    share = net.emit(relax.op.divide(size, net.emit(relax.op.add(mean, number(1e-3)))))
    return net.emit(relax.op.add(x, net.emit(relax.op.multiply(x, share))))


def spatial_attention(net: Growing, x: relax.Var, images: list[relax.Var]) -> relax.Var:
    parts = [net.emit(relax.op.max(x, [1], keepdims=True))]
    parts.append(net.emit(relax.op.mean(x, [1], keepdims=True)))
    weight = net.constant(1, 2, 3, 3, fan=18)
    map_ = net.emit(relax.op.nn.conv2d(net.emit(relax.op.concat(parts, 1)), weight, padding=1))
    return net.emit(relax.op.multiply(x, net.emit(relax.op.sigmoid(map_))))


def move(net: Growing, x: relax.Var, images: list[relax.Var]) -> relax.Var:
    """Pixels or channels in another order: rolled, shuffled, flipped, or padded and cut."""
    n, c, h, w = shape(x)
    kind = net.rng.choice(("roll", "shuffle", "flip", "cut"))
    if kind == "shuffle":
        apart = net.emit(relax.op.reshape(x, (n, 2, c // 2, h, w)))
        turned = net.emit(relax.op.permute_dims(apart, [0, 2, 1, 3, 4]))
        return net.emit(relax.op.reshape(turned, (n, c, h, w)))
    if kind == "flip":
        return net.emit(relax.op.flip(x, net.rng.choice((2, 3))))
    if kind == "cut":
        padded = net.emit(relax.op.nn.pad(x, [0, 0, 0, 0, 1, 2, 2, 0]))
        ends = [2 + h, 1 + w]
        return net.emit(relax.op.strided_slice(padded, [2, 3], [2, 1], ends))
    for axis in net.rng.choice(((2,), (3,), (2, 3))):
        cut, size = net.rng.randint(1, 3), shape(x)[axis]
        ends = [(cut, size), (0, cut)]
        parts = [net.emit(relax.op.strided_slice(x, [axis], [a], [b])) for a, b in ends]
        x = net.emit(relax.op.concat(parts, axis))
    return x


def upsample(net: Growing, x: relax.Var, images: list[relax.Var]) -> relax.Var:
    _, _, h, w = shape(x)
    if h >= net.size:
        return net.activate(x)
    how = net.rng.choice(("nearest_neighbor", "linear"))
    mode = "asymmetric" if how == "nearest_neighbor" else "half_pixel"
    size = relax.ShapeExpr((2 * h, 2 * w))
    return net.emit(
        relax.op.image.resize2d(
            x, size, layout="NCHW", method=how, coordinate_transformation_mode=mode,
            rounding_method="floor" if how == "nearest_neighbor" else "",
        )
    )  # fmt: skip


def to_rows(net: Growing, x: relax.Var, images: list[relax.Var]) -> relax.Var:
    n, c, h, w = shape(x)
    if net.rng.random() < 0.5:
        return net.emit(relax.op.mean(x, axis=[2, 3]))
    last = net.emit(relax.op.permute_dims(x, [0, 2, 3, 1]))
    return net.emit(relax.op.reshape(last, (n * h * w, c)))


IMAGE_LAYERS = (
    *(convolution,) * 5, transposed, pool, *(combine,) * 2, concatenate, split, channel_attention,
    *(to_rows,) * 2, *(channel_norm,) * 2, response_norm, spatial_attention, *(move,) * 2, upsample,
)  # fmt: skip
