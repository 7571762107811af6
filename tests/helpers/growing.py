"""A network that grows by random layers in the dataflow block of a builder."""

from __future__ import annotations

import random

import numpy as np
from tvm import relax

#: Seeds that follow each other have sizes in common, so that they share kernels and workloads.
SEEDS_OF_A_SIZE = 1000
ACTIVATIONS = ("relu", "silu", "sigmoid", "tanh", "gelu", "clip", "leakyrelu")


class Growing:
    """The builder and random numbers of a network; values stay of the order of 1."""

    def __init__(self, builder: relax.BlockBuilder, seed: int) -> None:
        self.builder = builder
        self.rng, self.np_rng = random.Random(seed), np.random.default_rng(seed)
        sizes = random.Random(seed // SEEDS_OF_A_SIZE)
        self.batch, self.size = sizes.choice((1, 1, 2)), sizes.choice((8, 10, 12))
        self.channels = sizes.choice(((8, 24), (16, 32), (32, 64), (16, 48), (6, 16)))

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

    def like(self, x: relax.Var, images: list[relax.Var]) -> relax.Var | None:
        same = [y for y in images if shape(y) == shape(x)]
        return self.rng.choice(same) if same else None


def number(value: float) -> relax.Constant:
    return relax.const(value, "float32")


def shape(x: relax.Expr) -> tuple[int, ...]:
    return tuple(int(size) for size in x.ty.shape.values)
