"""Random Relax networks of the layers that importers produce, float32 and NCHW."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

#: Seeds that follow each other have sizes in common, so that they share kernels and workloads.
SEEDS_OF_A_SIZE = 1000
ACTIVATIONS = ("relu", "silu", "sigmoid", "tanh", "gelu", "clip", "leakyrelu")


class Growing:
    """A network that grows in the dataflow block of a builder; values stay of the order of 1."""

    def __init__(self, builder: relax.BlockBuilder, seed: int) -> None:
        self.builder = builder
        self.rng, self.np_rng = random.Random(seed), np.random.default_rng(seed)
        sizes = random.Random(seed // SEEDS_OF_A_SIZE)
        self.batch, self.size = sizes.choice((1, 1, 2)), sizes.choice((8, 10, 12))
        self.channels = sizes.choice(((8, 24), (16, 32), (32, 64), (16, 48), (6, 16)))

    def grow(self, x: relax.Var, layers: int) -> list[relax.Var]:
        """Layers behind ``x``; the last value, and now and then some of those before it."""
        images, rows, results = [x], [], []
        for _ in range(layers):
            layer = self.rng.choice(
                ROW_LAYERS if rows and self.rng.random() < 0.4 else IMAGE_LAYERS
            )
            recent = images[-self.rng.choice((1, 1, 2, 4)) :]
            value = layer(self, self.rng.choice(rows if layer in ROW_LAYERS else recent), images)
            (rows if len(shape(value)) == 2 else images).append(value)
            if self.rng.random() < 0.1:
                results.append(value)
        results += [images[-1], *rows[-1:]]
        unique = {value for value in results if not value.same_as(x)}
        return sorted(unique, key=lambda value: value.name) or [self.activate(x)]

    def input(self, name: str) -> relax.Var:
        sizes = (self.batch, self.rng.choice(self.channels), self.size, self.size)
        return relax.Var(name, relax.TensorType(sizes, "float32"))

    def emit(self, call: relax.Expr) -> relax.Var:
        return self.builder.emit(call)

    def constant(self, *sizes: int, fan: int = 1, around: float = 0.0) -> relax.Constant:
        value = self.np_rng.standard_normal(sizes) / fan**0.5 + around
        return relax.const(value.astype("float32"))

    def activate(self, x: relax.Var) -> relax.Var:
        name = self.rng.choice(ACTIVATIONS)
        if name == "clip":
            return self.emit(relax.op.clip(x, -1.0, 1.5))
        home = relax.op if name in ("sigmoid", "tanh") else relax.op.nn
        return self.emit(getattr(home, name)(x))

    def convolution(self, x: relax.Var, images: list[relax.Var]) -> relax.Var:
        _, c, h, _ = shape(x)
        size, channels = self.rng.choice((1, 1, 3, 3, 5)), self.rng.choice(self.channels)
        groups = self.rng.choice((1, 1, 1, 2, c))
        stride = self.rng.choice((1, 1, 2)) if h == self.size else 1
        dilation = self.rng.choice((1, 1, 2)) if size == 3 else 1
        pad = size // 2 * dilation
        if groups == c:
            channels = c
        weight = self.constant(channels, c // groups, size, size, fan=c // groups * size * size)
        y = self.emit(
            relax.op.nn.conv2d(
                x, weight, strides=stride, padding=pad, dilation=dilation, groups=groups
            )
        )
        if self.rng.random() < 0.6:
            y = self.emit(relax.op.add(y, self.constant(1, channels, 1, 1, fan=4)))
        if self.rng.random() < 0.3:
            y = self.emit(relax.op.multiply(y, self.constant(1, channels, 1, 1, fan=9, around=1)))
        if self.rng.random() < 0.3 and (other := self.like(y, images)) is not None:
            y = self.emit(relax.op.add(y, other))
        return self.activate(y) if self.rng.random() < 0.6 else y

    def transposed(self, x: relax.Var, images: list[relax.Var]) -> relax.Var:
        _, c, h, _ = shape(x)
        if h >= self.size:
            return self.activate(x)
        weight = self.constant(c, c, 2, 2, fan=c)
        return self.emit(relax.op.nn.conv2d_transpose(x, weight, strides=2))

    def like(self, x: relax.Var, images: list[relax.Var]) -> relax.Var | None:
        same = [y for y in images if shape(y) == shape(x)]
        return self.rng.choice(same) if same else None

    def pool(self, x: relax.Var, images: list[relax.Var]) -> relax.Var:
        kind = self.rng.choice((relax.op.nn.max_pool2d, relax.op.nn.avg_pool2d))
        stride = self.rng.choice((1, 2)) if shape(x)[2] == self.size else 1
        return self.emit(kind(x, pool_size=(3, 3), strides=(stride, stride), padding=(1, 1)))

    def combine(self, x: relax.Var, images: list[relax.Var]) -> relax.Var:
        other = self.like(x, images)
        kind = self.rng.choice(
            (relax.op.add, relax.op.multiply, relax.op.subtract, relax.op.maximum)
        )
        return self.emit(kind(x, x if other is None else other))

    def concatenate(self, x: relax.Var, images: list[relax.Var]) -> relax.Var:
        sizes = shape(x)
        others = [y for y in images if shape(y)[2:] == sizes[2:] and shape(y)[1] + sizes[1] <= 48]
        if not others:
            return self.activate(x)
        parts = [x, self.rng.choice(others)]
        self.rng.shuffle(parts)
        joined = self.emit(relax.op.concat(parts, axis=1))
        channels = self.rng.choice(self.channels)
        weight = self.constant(channels, shape(joined)[1], 1, 1, fan=shape(joined)[1])
        return self.emit(relax.op.nn.conv2d(joined, weight))

    def split(self, x: relax.Var, images: list[relax.Var]) -> relax.Var:
        halves = self.emit(relax.op.split(x, 2, axis=1))
        first, second = (self.emit(relax.TupleGetItem(halves, i)) for i in range(2))
        weight = self.constant(shape(x)[1], shape(first)[1], 1, 1, fan=shape(first)[1])
        return self.emit(relax.op.nn.conv2d(self.emit(relax.op.multiply(first, second)), weight))

    def channel_attention(self, x: relax.Var, images: list[relax.Var]) -> relax.Var:
        c = shape(x)[1]
        mean = self.emit(relax.op.mean(x, axis=[2, 3], keepdims=True))
        gate = self.emit(relax.op.nn.conv2d(mean, self.constant(c, c, 1, 1, fan=c)))
        return self.emit(relax.op.multiply(x, self.emit(relax.op.sigmoid(gate))))

    def channel_norm(self, x: relax.Var, images: list[relax.Var]) -> relax.Var:
        """A layer norm of each pixel's channels, or a group norm; scaled or added to its input."""
        c = shape(x)[1]
        gamma, beta = self.constant(c, fan=9, around=1), self.constant(c, fan=4)
        if self.rng.random() < 0.5:
            last = self.emit(relax.op.permute_dims(x, [0, 2, 3, 1]))
            y = self.emit(relax.op.nn.layer_norm(last, gamma, beta, axes=[-1]))
            y = self.emit(relax.op.permute_dims(y, [0, 3, 1, 2]))
        else:
            y = self.emit(relax.op.nn.group_norm(x, gamma, beta, 2, 1, [2, 3]))
        if self.rng.random() < 0.4:
            y = self.emit(relax.op.multiply(y, self.constant(c, 1, 1, fan=4)))
        return self.emit(relax.op.add(x, y)) if self.rng.random() < 0.4 else y

    def response_norm(self, x: relax.Var, images: list[relax.Var]) -> relax.Var:
        """Channels by their share of the energy."""
        energy = self.emit(relax.op.sum(self.emit(relax.op.square(x)), [2, 3], keepdims=True))
        size = self.emit(relax.op.sqrt(energy))
        mean = self.emit(relax.op.mean(size, [1], keepdims=True))
        share = self.emit(relax.op.divide(size, self.emit(relax.op.add(mean, number(1e-3)))))
        return self.emit(relax.op.add(x, self.emit(relax.op.multiply(x, share))))

    def spatial_attention(self, x: relax.Var, images: list[relax.Var]) -> relax.Var:
        parts = [self.emit(relax.op.max(x, [1], keepdims=True))]
        parts.append(self.emit(relax.op.mean(x, [1], keepdims=True)))
        weight = self.constant(1, 2, 3, 3, fan=18)
        map_ = self.emit(
            relax.op.nn.conv2d(self.emit(relax.op.concat(parts, 1)), weight, padding=1)
        )
        return self.emit(relax.op.multiply(x, self.emit(relax.op.sigmoid(map_))))

    def move(self, x: relax.Var, images: list[relax.Var]) -> relax.Var:
        """Pixels or channels in another order: rolled, shuffled, flipped, or padded and cut."""
        n, c, h, w = shape(x)
        kind = self.rng.choice(("roll", "shuffle", "flip", "cut"))
        if kind == "shuffle":
            apart = self.emit(relax.op.reshape(x, (n, 2, c // 2, h, w)))
            turned = self.emit(relax.op.permute_dims(apart, [0, 2, 1, 3, 4]))
            return self.emit(relax.op.reshape(turned, (n, c, h, w)))
        if kind == "flip":
            return self.emit(relax.op.flip(x, self.rng.choice((2, 3))))
        if kind == "cut":
            padded = self.emit(relax.op.nn.pad(x, [0, 0, 0, 0, 1, 2, 2, 0]))
            ends = [2 + h, 1 + w]
            return self.emit(relax.op.strided_slice(padded, [2, 3], [2, 1], ends))
        for axis in self.rng.choice(((2,), (3,), (2, 3))):
            cut, size = self.rng.randint(1, 3), shape(x)[axis]
            ends = [(cut, size), (0, cut)]
            parts = [self.emit(relax.op.strided_slice(x, [axis], [a], [b])) for a, b in ends]
            x = self.emit(relax.op.concat(parts, axis))
        return x

    def upsample(self, x: relax.Var, images: list[relax.Var]) -> relax.Var:
        _, _, h, w = shape(x)
        if h >= self.size:
            return self.activate(x)
        how = self.rng.choice(("nearest_neighbor", "linear"))
        mode = "asymmetric" if how == "nearest_neighbor" else "half_pixel"
        size = relax.ShapeExpr((2 * h, 2 * w))
        return self.emit(
            relax.op.image.resize2d(
                x, size, layout="NCHW", method=how, coordinate_transformation_mode=mode,
                rounding_method="floor" if how == "nearest_neighbor" else "",
            )
        )  # fmt: skip

    def to_rows(self, x: relax.Var, images: list[relax.Var]) -> relax.Var:
        n, c, h, w = shape(x)
        if self.rng.random() < 0.5:
            return self.emit(relax.op.mean(x, axis=[2, 3]))
        last = self.emit(relax.op.permute_dims(x, [0, 2, 3, 1]))
        return self.emit(relax.op.reshape(last, (n * h * w, c)))

    def dense(self, x: relax.Var, images: list[relax.Var]) -> relax.Var:
        units, c = self.rng.choice(self.channels), shape(x)[1]
        y = self.emit(relax.op.matmul(x, self.constant(c, units, fan=c)))
        if self.rng.random() < 0.6:
            y = self.emit(relax.op.add(y, self.constant(units, fan=4)))
        return self.activate(y) if self.rng.random() < 0.5 else y

    def normalize(self, x: relax.Var, images: list[relax.Var]) -> relax.Var:
        c, draw = shape(x)[1], self.rng.random()
        if draw < 0.3:
            return self.emit(relax.op.nn.softmax(x, axis=-1))
        if draw < 0.6:
            mean = self.emit(relax.op.mean(self.emit(relax.op.square(x)), [-1], keepdims=True))
            scale = self.emit(relax.op.rsqrt(self.emit(relax.op.add(mean, number(1e-5)))))
            scaled = self.emit(relax.op.multiply(x, scale))
            return self.emit(relax.op.multiply(scaled, self.constant(c, fan=9, around=1)))
        gamma, beta = self.constant(c, fan=9, around=1), self.constant(c, fan=4)
        return self.emit(relax.op.nn.layer_norm(x, gamma, beta, axes=[-1]))

    def attention(self, x: relax.Var, images: list[relax.Var]) -> relax.Var:
        c = shape(x)[1]
        q, k, v = (self.emit(relax.op.matmul(x, self.constant(c, c, fan=c))) for _ in range(3))
        heads = self.rng.choice((1, 2))
        if heads > 1:
            q, k, v = (self.heads(part, heads) for part in (q, k, v))
        axes = [0, 2, 1] if heads > 1 else [1, 0]
        scores = self.emit(relax.op.matmul(q, self.emit(relax.op.permute_dims(k, axes))))
        scaled = self.emit(relax.op.multiply(scores, number((c / heads) ** -0.5)))
        if self.rng.random() < 0.4:
            bias = self.constant(*shape(scaled)[:-2], *[shape(scaled)[-1]] * 2)
            scaled = self.emit(relax.op.add(scaled, bias))
        y = self.emit(relax.op.matmul(self.emit(relax.op.nn.softmax(scaled)), v))
        if heads > 1:
            y = self.emit(
                relax.op.reshape(self.emit(relax.op.permute_dims(y, [1, 0, 2])), shape(x))
            )
        return self.emit(relax.op.add(x, y)) if self.rng.random() < 0.5 else y

    def heads(self, x: relax.Var, heads: int) -> relax.Var:
        rows, c = shape(x)
        apart = self.emit(relax.op.reshape(x, (rows, heads, c // heads)))
        return self.emit(relax.op.permute_dims(apart, [1, 0, 2]))

    def gated(self, x: relax.Var, images: list[relax.Var]) -> relax.Var:
        """Two products of one tensor, one of them the gate, and a third one back."""
        c = shape(x)[1]
        gate, y = (self.emit(relax.op.matmul(x, self.constant(c, 2 * c, fan=c))) for _ in range(2))
        y = self.emit(relax.op.multiply(self.activate(gate), y))
        y = self.emit(relax.op.matmul(y, self.constant(2 * c, c, fan=2 * c)))
        return self.emit(relax.op.add(x, y)) if self.rng.random() < 0.5 else y


Layer = Callable[[Growing, Any, list[Any]], relax.Var]
IMAGE_LAYERS: tuple[Layer, ...] = (
    *(Growing.convolution,) * 5, Growing.transposed, Growing.pool, *(Growing.combine,) * 2,
    Growing.concatenate, Growing.split, Growing.channel_attention, *(Growing.to_rows,) * 2,
    *(Growing.channel_norm,) * 2, Growing.response_norm, Growing.spatial_attention,
    *(Growing.move,) * 2, Growing.upsample,
)  # fmt: skip
ROW_LAYERS: tuple[Layer, ...] = (
    Growing.dense, Growing.dense, Growing.normalize, Growing.attention, Growing.gated,
)  # fmt: skip


def number(value: float) -> relax.Constant:
    return relax.const(value, "float32")


def shape(x: relax.Expr) -> tuple[int, ...]:
    return tuple(int(size) for size in x.ty.shape.values)


def random_module(seeds: list[int]) -> tuple[tvm.IRModule, list[int]]:
    """A module with a network for each seed, side by side, and each result's network."""
    builder, results, owners = relax.BlockBuilder(), [], []
    growing = [Growing(builder, seed) for seed in seeds]
    params = [g.input(f"x{i}") for i, g in enumerate(growing)]
    with builder.function("main", params):
        with builder.dataflow():
            for i, (network, x) in enumerate(zip(growing, params, strict=True)):
                found = network.grow(x, network.rng.randint(3, 12))
                results += found
                owners += [i] * len(found)
            output = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(output)
    return builder.get(), owners
