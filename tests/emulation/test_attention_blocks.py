"""Attention of channels and pixels between convolutions, as networks write it, placed for an H200
and computed by its generated kernels, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from convoy.graph.expr import shape_of
from convoy.ir.device import Device
from convoy.pipeline import place

from ..helpers.evaluate import evaluate
from .network import Emulation

SHAPE = (2, 16, 6, 5)


class Layers:
    """Layers of a network with random weights."""

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self.emit, self._rng = builder.emit, np.random.default_rng(0)

    def constant(self, *shape: int) -> relax.Expr:
        values = self._rng.uniform(-1, 1, shape) / max(1, np.prod(shape[1:])) ** 0.5
        return relax.const(values.astype("float16"))

    def conv(
        self, x: relax.Var, channels: int, window: int = 1, weights: relax.Expr | None = None
    ) -> relax.Var:
        """A convolution with a bias that keeps the size of the image."""
        if weights is None:
            weights = self.constant(channels, shape_of(x)[1], window, window)
        y = self.emit(op.nn.conv2d(x, weights, padding=window // 2))
        return self.emit(op.add(y, self.constant(1, channels, 1, 1)))


def efficient(layers: Layers, x: relax.Var) -> relax.Var:
    """Five taps over the means of neighbouring channels."""
    n, c, _, _ = SHAPE
    means = layers.emit(op.reshape(layers.emit(op.mean(x, axis=[2, 3])), (n, 1, 1, c)))
    mixed = layers.emit(op.nn.conv2d(means, layers.constant(1, 1, 1, 5), padding=(0, 2)))
    gates = layers.emit(op.reshape(layers.emit(op.sigmoid(mixed)), (n, c, 1, 1)))
    return layers.emit(op.multiply(x, gates))


def means_and_maxima(layers: Layers, x: relax.Var) -> relax.Var:
    """CBAM: one layer for means and maxima of channels, then a filter over those of pixels."""
    n, c, h, w = SHAPE
    emit = layers.emit
    rows = emit(op.max(emit(op.reshape(x, (n, c, h, 1, w))), axis=[4]))
    maxima = emit(op.max(emit(op.reshape(rows, (n, c, 1, h, 1))), axis=[3]))
    means = emit(op.mean(x, axis=[2, 3], keepdims=True))
    first, second = layers.constant(8, c, 1, 1), layers.constant(c, 8, 1, 1)
    ways = [
        emit(op.nn.conv2d(emit(op.nn.relu(emit(op.nn.conv2d(way, first)))), second))
        for way in (means, maxima)
    ]
    x = emit(op.multiply(x, emit(op.sigmoid(emit(op.add(*ways))))))
    both = [emit(reduce(x, axis=[1], keepdims=True)) for reduce in (op.mean, op.max)]
    of_pixels = layers.conv(emit(op.concat(both, axis=1)), 1, 7)
    return emit(op.multiply(x, emit(op.sigmoid(of_pixels))))


def affine(layers: Layers, x: relax.Var) -> relax.Var:
    """Numbers behind relus, of either sign."""
    for scale, shift in ((1.5, 0.25), (-0.75, 0.5)):
        y = layers.emit(op.nn.relu(layers.conv(x, SHAPE[1], 3)))
        y = layers.emit(op.multiply(y, relax.const(np.float16(scale))))
        x = layers.emit(op.add(y, relax.const(np.float16(shift))))
    return x


def of_pixels(layers: Layers, x: relax.Var) -> relax.Var:
    """Values times transposed weights, as SAGAN and DANet have them."""
    n, c, h, w = SHAPE
    emit = layers.emit
    q, k, v = (
        emit(op.reshape(layers.conv(x, size), (n, size, h * w))) for size in (8, 8, c)
    )  # fmt: skip
    scores = emit(op.matmul(emit(op.permute_dims(q, [0, 2, 1])), k))
    weights = emit(op.permute_dims(emit(op.nn.softmax(scores, axis=-1)), [0, 2, 1]))
    y = emit(op.reshape(emit(op.matmul(v, weights)), SHAPE))
    return emit(op.add(emit(op.multiply(y, relax.const(np.float16(0.5)))), x))


@pytest.mark.parametrize(
    ("block", "most"), [(efficient, 6), (means_and_maxima, 14), (affine, 6), (of_pixels, 9)]
)
def test_results_are_those_of_numpy(
    block: Callable[[Layers, relax.Var], relax.Var], most: int
) -> None:
    """Compare results, and count kernels: ``most``, copies at both ends included."""
    builder = relax.BlockBuilder()
    image = relax.Var("x", relax.TensorType(SHAPE, "float16"))
    with builder.function("main", [image]):
        with builder.dataflow():
            layers = Layers(builder)
            x = layers.emit(op.nn.relu(layers.conv(image, SHAPE[1], 3)))
            y = layers.conv(block(layers, x), SHAPE[1], 3)
            gv = builder.emit_output(y)
        builder.emit_func_output(gv)
    mod: Any = builder.get()
    emulation = Emulation(place(mod, precision="float16", device=Device(), measure=False), 1)
    data = np.random.default_rng(1).uniform(-1, 1, SHAPE).astype("float16")
    (want,) = evaluate(mod, [data])
    for order in range(2):
        (got,) = emulation(data, seed=order)
        np.testing.assert_allclose(got, want, rtol=2e-2, atol=1e-2)
    assert len(emulation.program.ops) <= most
