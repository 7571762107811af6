"""The backward pass of ResNet-50's convolutions: the gradients of one layer read by the next,
shortcuts added; wgrads are results that nothing waits for. The stem, which has no dgrad, is left
out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

DTYPE = "float16"
STAGES = ((56, 64, 3), (28, 128, 4), (14, 256, 6), (7, 512, 3))  # size, width, blocks


@dataclass(frozen=True)
class Layer:
    """A convolution by its forward sizes: input (size x size x channels), filter, stride."""

    size: int
    channels: int
    filters: int
    kernel: int
    stride: int = 1

    @property
    def out(self) -> int:
        return self.size // self.stride


def blocks() -> Iterator[tuple[Layer, Layer, Layer, Layer | None]]:
    """The bottlenecks in forward order: three convolutions and the projection, if any."""
    size, channels = 56, 64
    for out, width, count in STAGES:
        for block in range(count):
            stride = size // out
            project = Layer(size, channels, 4 * width, 1, stride) if block == 0 else None
            yield (
                Layer(size, channels, width, 1),
                Layer(size, width, width, 3, stride),
                Layer(out, width, 4 * width, 1),
                project,
            )
            size, channels = out, 4 * width


class Function:
    """Builds a function of convolution gradients: activations and incoming gradients are inputs,
    filters constants, all gradients of filters results."""

    def __init__(self, batch: int, seed: int = 1) -> None:
        from tvm import relax

        self.relax, self.batch = relax, batch
        self.builder = relax.BlockBuilder()
        self.results: list[Any] = []
        self.rng = np.random.default_rng(seed)

    def tensor(self, size: int, channels: int, name: str) -> Any:
        ty = self.relax.TensorType((self.batch, size, size, channels), DTYPE)
        return self.relax.Var(name, ty)

    def backward(self, layer: Layer, dy: Any, x: Any) -> Any:
        """dx of a layer; its dw becomes a result."""
        from convoy.ops import conv2d_dgrad, conv2d_wgrad

        shape = (layer.filters, layer.kernel, layer.kernel, layer.channels)
        scale = (layer.kernel**2 * layer.filters) ** -0.5
        w = self.relax.const((self.rng.standard_normal(shape) * scale).astype(DTYPE))
        sizes: dict[str, Any] = {"strides": layer.stride, "padding": layer.kernel // 2}
        kernel = (layer.kernel, layer.kernel)
        self.results.append(self.builder.emit(conv2d_wgrad(dy, x, kernel, **sizes)))
        return self.builder.emit(conv2d_dgrad(dy, w, (layer.size, layer.size), **sizes))

    def finish(self, params: list[Any], body: Callable[[], Any]) -> Any:
        with self.builder.function("main", params):
            with self.builder.dataflow():
                last = body()
                output = self.builder.emit_output(self.relax.Tuple([last, *self.results]))
            self.builder.emit_func_output(output)
        return self.builder.get()


def chain(batch: int) -> Any:
    """The whole pass, from the last block to the first, NHWC in float16."""
    function = Function(batch)
    order = list(blocks())[::-1]
    layers = [layer for block in order for layer in (block[3], *block[2::-1]) if layer]
    inputs = [function.tensor(c.size, c.channels, f"x{i}") for i, c in enumerate(layers)]
    first = function.tensor(order[0][2].out, order[0][2].filters, "dy")

    def body() -> Any:
        gradient, x = first, iter(inputs)
        for one, two, three, project in order:
            shortcut = function.backward(project, gradient, next(x)) if project else gradient
            inner = gradient
            for layer in (three, two, one):
                inner = function.backward(layer, inner, next(x))
            gradient = function.builder.emit(function.relax.op.add(inner, shortcut))
        return gradient

    return function.finish([first, *inputs], body)
