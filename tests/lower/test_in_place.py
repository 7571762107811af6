"""Which parts of concatenations are written in place, and which slices are read in place."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest
import tvm
from tvm import relax
from tvm.relax import op

from convoy.graph.expr import op_name
from convoy.graph.function import bindings_of, main_function
from convoy.graph.slices import COPY, layout_call, slices_of
from convoy.lower.channel_layout import Layout
from convoy.lower.in_place import uses_of, write_in_place

TARGET = tvm.target.Target("nvidia/nvidia-h100", host="llvm")
READS, WRITES = 0, 1  # of the functions here, which have one operand
BOTH = (READS, WRITES)


class Network:
    """A network of external functions and operators, on tensors of 16 channels."""

    def __init__(self) -> None:
        self.builder = relax.BlockBuilder()

    def call(self, symbol: str, x: relax.Expr, channels: int = 16) -> relax.Var:
        ty = relax.TensorType((1, 8, 8, channels), "float16")
        return self.builder.emit(relax.op.call_dps_packed(symbol, [x], out_ty=ty))

    def concat(self, *parts: relax.Expr) -> relax.Var:
        return self.builder.emit(op.concat(parts, axis=-1))

    def slice(self, x: relax.Expr, begin: int, end: int) -> relax.Var:
        return self.builder.emit(op.strided_slice(x, axes=[-1], begin=[begin], end=[end]))

    def module(self, build: Callable[[Network, relax.Var], list[relax.Expr]]) -> tvm.IRModule:
        x = relax.Var("x", relax.TensorType((1, 8, 8, 16), "float16"))
        with self.builder.function("main", [x]):
            with self.builder.dataflow():
                results = [self.builder.emit_output(value) for value in build(self, x)]
            self.builder.emit_func_output(relax.Tuple(results))
        return relax.transform.CanonicalizeBindings()(self.builder.get())


def laid_out(
    build: Callable[[Network, relax.Var], list[relax.Expr]],
    functions: dict[str, Collection[int]],
    kernel_us: float = 1.0,
) -> list[str]:
    """The joins, cuts, copies and concatenations that are left, in order."""
    mod = write_in_place(
        Network().module(build), TARGET, functions, lambda moved: kernel_us + moved / 1e4
    )
    _, func = main_function(mod)
    assert slices_of(func) or not any(layout_call(b.value) for b in bindings_of(func))
    found = []
    for binding in bindings_of(func):
        name, call = op_name(binding.value), binding.value
        if name == "relax.call_dps_packed":
            symbol = str(call.args[0].global_symbol)
            if layout_call(call) or symbol == COPY:
                found.append(f"{symbol.removeprefix('convoy.')}{len(call.args[1].fields)}")
        elif name in ("relax.concat", "relax.strided_slice"):
            found.append(name.removeprefix("relax."))
    return found


def two(n: Network, x: relax.Var) -> list[relax.Expr]:
    return [n.call("h", n.concat(n.call("f", x), n.call("g", x)), 8)]


def with_reader(n: Network, x: relax.Var) -> list[relax.Expr]:
    a = n.call("f", x)
    return [n.call("h", n.concat(a, n.call("g", x)), 8), n.call("r", a, 8)]


def returned(n: Network, x: relax.Var) -> list[relax.Expr]:
    a = n.call("f", x)
    return [n.call("h", n.concat(a, n.call("g", x)), 8), a]


def twice(n: Network, x: relax.Var) -> list[relax.Expr]:
    a = n.call("f", x)
    return [n.call("h", n.concat(a, n.call("g", x), a), 8)]


def an_input(n: Network, x: relax.Var) -> list[relax.Expr]:
    return [n.call("h", n.concat(x, n.call("g", x)), 8)]


def odd(n: Network, x: relax.Var) -> list[relax.Expr]:
    return [n.call("h", n.concat(n.call("f", x, 12), n.call("g", x, 12)), 8)]


def odd_neighbours(n: Network, x: relax.Var) -> list[relax.Expr]:
    parts = n.call("f", x, 12), n.call("g", x, 4), n.call("f", x, 32)
    return [n.call("h", n.concat(*parts), 8)]


def fused(n: Network, x: relax.Var) -> list[relax.Expr]:
    return [n.call("h", n.builder.emit(op.tanh(n.concat(n.call("f", x), n.call("g", x)))), 8)]


def computed(n: Network, x: relax.Var) -> list[relax.Expr]:
    a, b = n.builder.emit(op.tanh(x)), n.builder.emit(op.exp(n.call("g", x)))
    return [n.call("h", n.concat(a, b), 8)]


def grows(n: Network, x: relax.Var) -> list[relax.Expr]:
    a, b = n.call("f", x), n.call("g", x)
    c = n.call("r", n.concat(a, b))
    return [n.call("h", n.concat(a, b, c), 8)]


def halves(n: Network, x: relax.Var) -> list[relax.Expr]:
    a = n.call("f", x)
    low, high = n.slice(a, 0, 8), n.slice(a, 8, 16)
    return [n.call("h", n.concat(low, high, n.call("r", high)), 8)]


def returned_half(n: Network, x: relax.Var) -> list[relax.Expr]:
    high = n.slice(n.call("f", x), 8, 16)
    return [high, n.call("r", high, 8)]


EVERY = dict.fromkeys("fghr", BOTH)


@pytest.mark.parametrize(
    ("build", "functions", "left"),
    [
        (two, EVERY, ["join2"]),
        (two, EVERY | {"h": ()}, ["join2"]),  # which reads the whole
        (two, EVERY | {"g": (READS,)}, ["copy1", "join2"]),
        (two, {"h": BOTH}, ["concat"]),
        (with_reader, EVERY, ["join2"]),
        (with_reader, EVERY | {"r": (WRITES,)}, ["copy1", "join2"]),
        (returned, EVERY, ["copy1", "join2"]),
        (twice, EVERY, ["copy1", "copy1", "join3"]),
        (an_input, EVERY, ["copy1", "join2"]),
        (odd, EVERY, ["concat"]),
        (odd_neighbours, EVERY, ["concat", "join2"]),
        (fused, EVERY, ["concat"]),
        (computed, EVERY, ["concat"]),
        (grows, EVERY, ["join2", "join2"]),
        (grows, EVERY | {"r": (WRITES,)}, ["join2", "concat", "join2"]),
        (halves, EVERY, ["cut.81", "join2"]),
        (halves, EVERY | {"r": (WRITES,)}, ["strided_slice", "join2"]),
        (returned_half, EVERY, ["strided_slice"]),
        (halves, EVERY | {"f": ()}, ["strided_slice", "cut.81", "concat", "join2"]),
    ],
)  # fmt: skip
def test_layout(
    build: Callable[[Network, relax.Var], list[relax.Expr]],
    functions: dict[str, Collection[int]],
    left: list[str],
) -> None:
    assert laid_out(build, functions, kernel_us=0.01) == left


def test_kernels_that_would_take_longer_than_one() -> None:
    """Two copies instead of one concatenation of three small parts."""
    assert laid_out(twice, EVERY, kernel_us=100.0) == ["concat"]


def test_time_of_what_is_left_to_copy() -> None:
    uses = uses_of(Network().module(with_reader), TARGET)
    row = 1 * 8 * 8 * 16 * 2

    def left(functions: dict[str, Collection[int]]) -> float:
        return Layout(uses, functions, float).copying_us

    assert left(EVERY) == 0
    assert left(EVERY | {"r": (WRITES,)}) == 2 * row
    assert left({}) == 4 * row
