"""A reshape that a function returns is a view, except of what is the caller's own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op
from tvm.runtime.vm import VirtualMachine

from convoy.ir.device import Device
from convoy.lower.lowered import Lowered
from convoy.runtime import load_runtime
from convoy.streams.link import Part, link
from convoy.streams.planner import multi_stream, single_stream
from convoy.streams.program import read

from ..helpers.stock import machine

TARGET = tvm.target.Target("llvm")
SHAPE = (6, 8)
Emit = Callable[..., relax.Expr]


def scores(emit: Emit, x: relax.Expr) -> relax.Expr:
    return emit(op.nn.log_softmax(x))


def one(emit: Emit, x: relax.Expr) -> list[relax.Expr]:
    return [emit(op.reshape(scores(emit, x), (2, 3, 8)))]


def read_again(emit: Emit, x: relax.Expr) -> list[relax.Expr]:
    y = scores(emit, x)
    flat = emit(op.reshape(y, (48,)))
    return [flat, emit(op.nn.softmax(emit(op.add(y, y))))]


def of_the_input(emit: Emit, x: relax.Expr) -> list[relax.Expr]:
    return [emit(op.reshape(x, (48,))), emit(op.reshape(scores(emit, x), (3, 16)))]


def twice(emit: Emit, x: relax.Expr) -> list[relax.Expr]:
    y = scores(emit, x)
    return [emit(op.reshape(y, (48,))), emit(op.reshape(y, (3, 16)))]


def beside_its_source(emit: Emit, x: relax.Expr) -> list[relax.Expr]:
    y = scores(emit, x)
    return [y, emit(op.reshape(y, (48,)))]


CASES = {one: 1, read_again: 2, of_the_input: 2, twice: 2, beside_its_source: 2}


@pytest.mark.parametrize("body", CASES, ids=lambda body: body.__name__)
def test_results(body: Callable[[Emit, relax.Expr], list[relax.Expr]]) -> None:
    """They are right, also behind kernels that reuse memory, and no two share theirs."""
    load_runtime()
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = relax.Tuple(body(builder.emit, x))
            output = builder.emit_output(result)
        builder.emit_func_output(output)
    given = np.random.default_rng(0).standard_normal(SHAPE).astype("float32")
    reference = machine(builder.get())
    want = [y.numpy() for y in reference["main"](tvm.runtime.tensor(given))]
    lowered = Lowered.of(builder.get(), TARGET)
    program = read(lowered.calls, Device())
    assert len(program.ops) == CASES[body]
    for schedule in (
        single_stream(program.ops, program.buffers),
        multi_stream(program.ops, program.buffers, 2),
    ):
        vm = VirtualMachine(link([Part(lowered, program, schedule)]), tvm.cpu())
        got = vm["main"](tvm.runtime.tensor(given))
        for y, expected in zip(got, want, strict=True):
            np.testing.assert_allclose(y.numpy(), expected, atol=1e-5)
        copies = [y.numpy().copy() for y in got]
        for i, y in enumerate(got):
            y.copyfrom(np.zeros(y.shape, "float32"))
            others = zip(got[i + 1 :], copies[i + 1 :], strict=True)
            assert all((other.numpy() == copy).all() for other, copy in others)
