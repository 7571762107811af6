"""Padded weights give zeros where a pad would have put them."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy.graph.expr import op_name, shape_of
from convoy.graph.function import bindings_of
from convoy.graph.rewriter import Rewriter
from convoy.normalize.weight_padding import Groups, WeightPadding

from ..graph.nets import run_llvm


class Pad(Rewriter):
    """Puts zeros behind each group of the axis of a ReLU."""

    ops: ClassVar[frozenset[str] | None] = frozenset({"relax.nn.relu"})

    def __init__(self, groups: Groups, in_weights: bool) -> None:
        super().__init__()
        self._groups, self._tries = groups, in_weights
        self.in_weights = False

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        (x,), groups = call.args, self._groups
        found = WeightPadding(self, lambda matmul: True).padded(x, groups) if self._tries else None
        if found is not None:
            self.in_weights = True
            return op.nn.relu(found)
        shape = shape_of(x)
        split = (*shape[: groups.axis], groups.count, groups.size, *shape[groups.axis + 1 :])
        width = [0] * (2 * len(split))
        width[2 * groups.axis + 3] = groups.target - groups.size
        padded = self.emit(op.nn.pad(self.emit(op.reshape(x, split)), width))
        return op.nn.relu(self.emit(op.reshape(padded, groups.padded_shape(shape))))


def network(steps: list[Any], columns: int = 24) -> Any:
    """A matmul by constants, and a ReLU behind these steps."""
    rng = np.random.default_rng(0)
    x = relax.Var("x", relax.TensorType((4, 6, 5), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            matrix = relax.const(rng.uniform(-1, 1, (5, columns)).astype("float32"))
            y = builder.emit(op.matmul(x, matrix))
            for step in steps:
                y = builder.emit(step(y))
            result = builder.emit_output(op.nn.relu(y))
        builder.emit_func_output(result)
    return builder.get()


def check(mod: Any, groups: Groups) -> bool:
    """Whether the weights are padded instead; the result is compared with a padded one."""
    x = np.random.default_rng(1).standard_normal((4, 6, 5)).astype("float32")
    pads = Pad(groups, True)
    got, want = (run_llvm(one(mod), x) for one in (pads, Pad(groups, False)))
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=1e-6)
    names = [op_name(b.value) for b in bindings_of(pads(mod)["main"])]
    return "relax.nn.pad" not in names


@st.composite
def networks(draw: st.DrawFn) -> tuple[Any, Groups]:
    """Views, scales and shifts behind a matmul; and groups of some axis of the last one."""
    shape, steps = (4, 6, 24), []
    for _ in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from(["split", "join", "permute", "scale", "shift", "slice"]))
        axis = draw(st.integers(0, len(shape) - 1))
        if kind == "split" and len(shape) < 6:
            factor = draw(st.sampled_from([f for f in (1, 2, 3, 4) if shape[axis] % f == 0]))
            shape = (*shape[:axis], shape[axis] // factor, factor, *shape[axis + 1 :])
            steps.append(lambda y, to=shape: op.reshape(y, to))
        elif kind == "join" and axis + 1 < len(shape):
            shape = (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
            steps.append(lambda y, to=shape: op.reshape(y, to))
        elif kind == "permute":
            order = draw(st.permutations(range(len(shape))))
            shape = tuple(shape[place] for place in order)
            steps.append(lambda y, by=tuple(order): op.permute_dims(y, by))
        elif kind == "scale":
            steps.append(lambda y: op.multiply(y, relax.const(np.float32(0.75))))
        elif kind == "shift":
            values = np.linspace(-1, 1, shape[-1], dtype="float32")
            steps.append(lambda y, by=values: op.add(y, relax.const(by)))
        elif kind == "slice" and shape[axis] > 1:
            steps.append(lambda y, axis=axis: op.strided_slice(y, [axis], [1], [1 << 30]))
            shape = (*shape[:axis], shape[axis] - 1, *shape[axis + 1 :])
    axis = draw(st.integers(0, len(shape) - 1))
    size = draw(st.sampled_from([s for s in range(1, shape[axis] + 1) if shape[axis] % s == 0]))
    return network(steps), Groups(axis, shape[axis] // size, size, size + draw(st.integers(1, 3)))


@settings(max_examples=60, deadline=None)
@given(networks())
def test_zeros_are_where_a_pad_puts_them(given_: tuple[Any, Groups]) -> None:
    check(*given_)


HEADS = (4, 6, 3, 2, 4)
WHOLE = [lambda y: op.reshape(y, HEADS), lambda y: op.permute_dims(y, (2, 0, 3, 1, 4))]


@pytest.mark.parametrize(
    "steps",
    [
        [],
        [lambda y: op.strided_slice(y, [0], [1], [2])],
        [lambda y: op.multiply(y, relax.const(np.float32(0.5)))],
        [lambda y: op.divide(y, relax.const(np.float32(3)))],
        [lambda y: op.permute_dims(y, (0, 1, 3, 2, 4))],
        [lambda y: op.strided_slice(y, [1, 4], [1, 0], [3, 4])],
        [lambda y: op.strided_slice(y, [0], [-1], [-4], [-1])],
    ],
)
def test_heads_of_a_matmul_are_padded_in_its_weights(steps: list[Any]) -> None:
    assert math.prod(HEADS) == 4 * 6 * 24
    assert check(network([*WHOLE, *steps]), Groups(4, 1, 4, 8))


@pytest.mark.parametrize(
    "step",
    [
        lambda y: op.add(y, relax.const(np.float32(0.5))),  # no zeros behind it
        lambda y: op.divide(y, relax.const(np.float32(0))),
        lambda y: op.strided_slice(y, [4], [1], [3]),
        lambda y: op.strided_slice(y, [4], [-1], [-5], [-1]),
        lambda y: op.exp(y),
        lambda y: op.multiply(y, y),
    ],
)
def test_others_are_padded_at_run_time(step: Any) -> None:
    mod = network([*WHOLE, step])
    size = int(shape_of(bindings_of(mod["main"])[-1].value)[4])
    pads = Pad(Groups(4, 1, size, 8), True)
    pads(mod)
    assert not pads.in_weights


def test_slices_of_whole_groups_are_padded_in_the_weights() -> None:
    mod = network([lambda y: op.strided_slice(y, [2], [8], [20])])
    assert check(mod, Groups(2, 3, 4, 5)) and not check(mod, Groups(2, 2, 6, 8))


def test_groups_that_are_cut_apart_are_padded_at_run_time() -> None:
    mod = network([lambda y: op.reshape(y, (4, 6, 4, 6))])
    assert check(mod, Groups(3, 1, 6, 8)) and not check(mod, Groups(2, 1, 4, 5))
