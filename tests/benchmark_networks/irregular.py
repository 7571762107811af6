"""Two networks with irregular wiring, built on Relax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class _Nhwc:
    """Layers in NHWC with constant weights, on a Relax builder."""

    def __init__(self, seed: int = 0) -> None:
        from tvm import relax

        self._relax, self._rng = relax, np.random.default_rng(seed)
        self.builder = relax.BlockBuilder()

    def _filter(self, *shape: int) -> Any:
        values = self._rng.normal(0, (2.0 / np.prod(shape[1:])) ** 0.5, shape)
        return self._relax.const(values.astype("float32"))

    def conv(self, x: Any, k: int, r: int = 3, stride: int = 1, depthwise: bool = False) -> Any:
        c = int(x.ty.shape.values[-1])
        w, groups = self._filter(k, r, r, 1 if depthwise else c), c if depthwise else 1
        layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
        sizes = {"strides": stride, "padding": r // 2, "groups": groups}
        return self.builder.emit(self._relax.op.nn.conv2d(x, w, **sizes, **layouts))

    def relu(self, x: Any) -> Any:
        return self.builder.emit(self._relax.op.nn.relu(x))

    def add(self, *items: Any) -> Any:
        total = items[0]
        for item in items[1:]:
            total = self.builder.emit(self._relax.op.add(total, item))
        return total

    def pool(self, x: Any, average: bool) -> Any:
        op = self._relax.op.nn.avg_pool2d if average else self._relax.op.nn.max_pool2d
        return self.builder.emit(op(x, (3, 3), (1, 1), (1, 1), layout="NHWC"))

    def concat(self, items: list[Any]) -> Any:
        return self.builder.emit(self._relax.op.concat(items, axis=3))

    def function(self, shape: tuple[int, ...], body: Callable[[Any], Any]) -> Any:
        x = self._relax.Var("data", self._relax.TensorType(shape, "float32"))
        with self.builder.function("main", [x]):
            with self.builder.dataflow():
                result = self.builder.emit_output(body(x))
            self.builder.emit_func_output(result)
        return self.builder.get()


def randwire(batch: int, nodes: int = 32, channels: int = 64, size: int = 28) -> Any:
    """A stage of a randomly wired network (Xie et al., 2019): a Watts-Strogatz graph with K=4 and
    P=0.75 whose edges go from the lower to the higher node; a node adds what comes in and applies
    relu and a 3x3 convolution. Ends without successors are averaged by a last 1x1 convolution."""
    rng = np.random.default_rng(1)
    edges = set()
    for node in range(nodes):
        for step in (1, 2):
            other = (node + step) % nodes
            if rng.random() < 0.75:
                free = [n for n in range(nodes) if n != node and not {(node, n), (n, node)} & edges]
                other = int(rng.choice(free))
            edges.add((min(node, other), max(node, other)))
    net = _Nhwc()

    def body(x: Any) -> Any:
        made: list[Any] = []
        for node in range(nodes):
            inputs = [made[a] for a, b in sorted(edges) if b == node]
            made.append(net.conv(net.relu(net.add(*inputs) if inputs else x), channels))
        ends = [made[n] for n in range(nodes) if all(a != n for a, _ in edges)]
        return net.conv(net.relu(net.add(*ends)), channels, r=1)

    return net.function((batch, size, size, channels), body)


def nasnet_cell(batch: int, cells: int = 4, channels: int = 88, size: int = 28) -> Any:
    """Normal cells of NASNet-A (Zoph et al., 2018), each with the outputs of the two before it."""
    net = _Nhwc()

    def separable(x: Any, r: int) -> Any:
        for _ in range(2):
            x = net.conv(net.conv(net.relu(x), channels, r, depthwise=True), channels, 1)
        return x

    def cell(h: Any, before: Any) -> Any:
        h, before = (net.conv(net.relu(x), channels, 1) for x in (h, before))
        return net.concat(
            [
                before,
                net.add(separable(h, 3), h),
                net.add(separable(before, 3), separable(h, 5)),
                net.add(net.pool(h, True), before),
                net.add(net.pool(before, True), net.pool(before, True)),
                net.add(separable(before, 5), separable(before, 3)),
            ]
        )

    def body(x: Any) -> Any:
        before, h = x, x
        for _ in range(cells):
            before, h = h, cell(h, before)
        return h

    return net.function((batch, size, size, channels), body)
