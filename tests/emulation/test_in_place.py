"""Concatenations written in place and slices read in place, as scheduled for an H200, against
NumPy: random networks, library functions that can do so and others that cannot."""

from __future__ import annotations

import random
from unittest import mock

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from convoy.ir.device import Device
from convoy.ir.plan import Plan
from convoy.pipeline import lowering, place

from ..helpers.evaluate import evaluate
from .network import Emulation

IMAGE = (4, 5)
#: Channels of values; 4 and 12 are no multiple of 16 bytes.
CHANNELS = (8, 8, 16, 16, 24, 32, 12, 4)


class Builder:
    """A random network of convolutions, concatenations, slices and what TVM computes."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.values = np.random.default_rng(seed)
        self.builder = relax.BlockBuilder()
        self.known: list[relax.Var] = []
        self.joined: list[list[relax.Var]] = []

    def module(self, steps: int) -> tvm.IRModule:
        x = relax.Var("x", relax.TensorType((2, 16, *IMAGE), "float16"))
        with self.builder.function("main", [x]):
            with self.builder.dataflow():
                self.known.append(self._conv(x))
                for _ in range(steps):
                    made = self.rng.choice(
                        (self._conv, self._depthwise, self._pointwise, self._pool, self._sum)
                    )
                    self.known.append(made(self.rng.choice(self.known[-4:])))
                    if self.rng.random() < 0.4:
                        self.known.append(self._concat())
                    if self.rng.random() < 0.25:
                        self.known += self._halves(self.rng.choice(self.known[-3:]))
                ends = [self._conv(self.known[-1]), self._concat()]
                ends += self.rng.sample(self.known, self.rng.choice((0, 0, 1)))
                results = [self.builder.emit_output(self._emit(op.add(e, e))) for e in ends[:-1]]
                results.append(self.builder.emit_output(ends[-1]))
            self.builder.emit_func_output(relax.Tuple(results))
        return self.builder.get()

    def _emit(self, value: relax.Expr) -> relax.Var:
        return self.builder.emit(value)

    def _conv(self, x: relax.Var) -> relax.Var:
        channels, width = int(x.ty.shape[1]), self.rng.choice((1, 3))
        made, bound = self.rng.choice(CHANNELS), (channels * width * width) ** -0.5
        filters = self.values.uniform(-bound, bound, (made, channels, width, width))
        padding = (width // 2,) * 2
        y = op.nn.conv2d(x, relax.const(filters.astype("float16")), padding=padding)
        return self._emit(op.nn.relu(self._emit(y))) if self.rng.random() < 0.7 else self._emit(y)

    def _depthwise(self, x: relax.Var) -> relax.Var:
        channels = int(x.ty.shape[1])
        filters = self.values.uniform(-1 / 3, 1 / 3, (channels, 1, 3, 3)).astype("float16")
        return self._emit(op.nn.conv2d(x, relax.const(filters), padding=(1, 1), groups=channels))

    def _pointwise(self, x: relax.Var) -> relax.Var:
        return self._emit(self.rng.choice((op.nn.silu, op.tanh, op.nn.relu))(x))

    def _pool(self, x: relax.Var) -> relax.Var:
        return self._emit(op.nn.max_pool2d(x, (3, 3), padding=(1, 1)))

    def _sum(self, x: relax.Var) -> relax.Var:
        same = [v for v in self.known if v.ty.shape[1] == x.ty.shape[1]]
        return self._emit(op.add(x, self.rng.choice(same or [x])))

    def _concat(self) -> relax.Var:
        recent = self.known[-6:]
        parts = [self.rng.choice(recent) for _ in range(self.rng.choice((2, 2, 3, 4)))]
        if self.joined and self.rng.random() < 0.5:  # one that grows
            parts = [*self.rng.choice(self.joined[-2:]), recent[-1]]
        parts = parts[:6]
        self.joined.append(parts)
        return self._emit(op.concat(parts, axis=1))

    def _halves(self, x: relax.Var) -> list[relax.Var]:
        channels = int(x.ty.shape[1])
        half = channels // 2
        if half * 2 == channels and self.rng.random() < 0.5:
            both = self._emit(op.split(x, 2, axis=1))
            return [self._emit(relax.TupleGetItem(both, i)) for i in range(2)]
        return [
            self._emit(op.strided_slice(x, axes=[1], begin=[begin], end=[end]))
            for begin, end in ((0, half), (half, channels))
            if half
        ]


def some(share: float, seed: int):  # type: ignore[no-untyped-def]
    """Library functions of which a share can read or write each of their operands in place."""

    def sliceable(plan: Plan, _backends: object) -> dict[str, set[int]]:
        rng = random.Random(seed)
        return {
            symbol: {i for i in (0, *range(2, 7)) if rng.random() < share}
            for symbol in plan.functions()
        }

    return sliceable


def check(seed: int, share: float, streams: int, steps: int = 9) -> int:
    """Compare a network with NumPy; the number of tensors that lie in others."""
    mod = Builder(seed).module(steps)
    x = np.random.default_rng(seed).uniform(-1, 1, (2, 16, *IMAGE)).astype("float16")
    placement = place(mod, precision="float16", device=Device(), measure=False)
    with (
        mock.patch.object(lowering, "sliceable_operands", some(share, seed)),
        mock.patch.object(lowering, "moving_us", lambda moved, device: moved),
        mock.patch.object(lowering, "wanted", lambda: True),
    ):
        emulation = Emulation(placement, streams)
    want = evaluate(mod, [x])
    for order in range(2):
        for got, expected in zip(emulation(x, seed=order), want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=2e-2, atol=2e-2)
    return len(emulation.program.sliced)


@pytest.mark.parametrize(
    ("share", "streams", "seeds"),
    [(1.0, 1, (0, 1)), (1.0, 3, (2, 3)), (0.6, 1, (4, 5)), (0.6, 3, (6, 7))],
)
def test_random_networks(share: float, streams: int, seeds: tuple[int, int]) -> None:
    assert sum(check(seed, share, streams) for seed in seeds)
