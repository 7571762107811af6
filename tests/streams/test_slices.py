"""Tensors that lie in others: what depends on what, and programs on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op
from tvm.runtime.vm import VirtualMachine

from convoy.graph.slices import NotSliceable, cut, join
from convoy.ir.device import Device
from convoy.lower.lowered import Lowered
from convoy.lower.strided_kernels import on_slices
from convoy.runtime import load_runtime
from convoy.streams.link import Part, link
from convoy.streams.planner import multi_stream, single_stream
from convoy.streams.program import Program, read

TARGET = tvm.target.Target("llvm")
SHAPE = (2, 3, 4, 8)
Emit = Callable[[relax.Expr], relax.Var]


def lowered(build: Callable[[Emit, relax.Var], list[relax.Expr]]) -> Lowered:
    load_runtime()
    x, builder = relax.Var("x", relax.TensorType(SHAPE, "float32")), relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            results = [builder.emit_output(value) for value in build(builder.emit, x)]
        builder.emit_func_output(relax.Tuple(results))
    return Lowered.of(builder.get(), TARGET)


def run(lowered: Lowered, streams: int) -> list[np.ndarray]:
    program = read(lowered.calls, Device())
    plan = single_stream if streams == 1 else lambda o, b: multi_stream(o, b, streams)
    executable = link([Part(lowered, program, plan(program.ops, program.buffers))])
    x = np.linspace(-1, 1, np.prod(SHAPE), dtype="float32").reshape(SHAPE)
    vm = VirtualMachine(executable, tvm.cpu())
    return [x, *(tensor.numpy() for tensor in vm["main"](tvm.runtime.tensor(x)))]


def apart(emit: Emit, x: relax.Var) -> list[relax.Expr]:
    """A part that others read, a tensor that grows, and one that is cut."""
    a, b = emit(op.tanh(x)), emit(op.exp(x))
    first = emit(join([a, b]))
    c = emit(op.negative(b))
    grown = emit(join([first, c]))
    middle = emit(cut(grown, 8, 8))
    return [emit(op.add(first, first)), emit(op.multiply(grown, grown)), emit(op.add(middle, a))]


@pytest.mark.parametrize("streams", [1, 3])
def test_programs(streams: int) -> None:
    x, twice, squares, mixed = run(lowered(apart), streams)
    a, b = np.tanh(x), np.exp(x)
    np.testing.assert_allclose(twice, 2 * np.concatenate([a, b], -1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(squares, np.concatenate([a, b, -b], -1) ** 2, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(mixed, b + a, rtol=1e-5, atol=1e-6)


def test_a_joined_result_and_a_part_of_an_input() -> None:
    """Neither lies in the arena."""

    def build(emit: Emit, x: relax.Var) -> list[relax.Expr]:
        return [emit(join([emit(op.tanh(emit(cut(x, 4, 4)))), emit(op.exp(x))]))]

    x, wide = run(lowered(build), 1)
    np.testing.assert_allclose(
        wide, np.concatenate([np.tanh(x[..., 4:]), np.exp(x)], -1), rtol=1e-5
    )


def test_only_accesses_of_the_same_channels_depend_on_each_other() -> None:
    program: Program = read(lowered(apart).calls, Device())
    names = [op.symbol.partition("_in_place")[0] for op in program.ops]
    writes = {name.removeprefix("tir_"): i for i, name in enumerate(names)}
    depends = {name: set(program.ops[i].depends) for name, i in writes.items()}
    assert depends["exp"] == set(), "beside the other part"
    assert depends["negative"] == {writes["exp"]}
    assert depends["add"] == {writes["tanh"], writes["exp"]}
    assert depends["multiply"] == {writes["tanh"], writes["exp"], writes["negative"]}
    (buffer,) = program.buffers
    assert buffer.size == 4 * 2 * 3 * 4 * 24, "parts have no memory of their own"
    assert set(buffer.writers) == {writes["tanh"], writes["exp"], writes["negative"]}


def test_rows_that_are_reshaped() -> None:
    """Rows of another length are none of a slice's; rows of the same length are."""

    def build(shape: tuple[int, ...]) -> Callable[[Emit, relax.Var], list[relax.Expr]]:
        def reshaped(emit: Emit, x: relax.Var) -> list[relax.Expr]:
            a = emit(op.tanh(x))
            view = emit(op.reshape(a, shape))
            wide = emit(join([a, emit(op.exp(x))]))
            several = [emit(op.negative(view)), emit(op.exp(view))]  # so that it is a view
            return [*several, emit(op.add(wide, wide))]

        return reshaped

    x, negated, *_ = run(lowered(build((6, 4, 8))), 1)
    np.testing.assert_allclose(negated, -np.tanh(x).reshape(6, 4, 8), rtol=1e-5, atol=1e-6)
    with pytest.raises(NotSliceable, match="reshaped"):
        lowered(build((6, 32)))


def test_a_tensor_lies_in_one_other() -> None:
    def build(emit: Emit, x: relax.Var) -> list[relax.Expr]:
        a, b = emit(op.tanh(x)), emit(op.exp(x))
        return [emit(op.negative(emit(join([a, b])))), emit(op.negative(emit(join([b, a]))))]

    with pytest.raises(NotSliceable, match="several tensors"):
        lowered(build)


def test_a_library_that_lowering_calls() -> None:
    """Only the functions that the network itself calls are known to take slices."""
    x, builder = relax.Var("x", relax.TensorType(SHAPE, "float32")), relax.BlockBuilder()
    with builder.function("main", [x]):
        parts = [builder.emit(op.builtin.alloc_tensor(x.ty.shape, "float32", 0)) for _ in range(2)]
        shape = relax.ShapeExpr([*SHAPE[:-1], 2 * SHAPE[-1]])
        wide = builder.emit(op.builtin.alloc_tensor(shape, "float32", 0))
        for symbol, args in (("sorted", [x, parts[0]]), ("convoy.join", [*parts, wide])):
            nothing = [relax.TupleType([])]
            builder.emit(relax.Call(relax.ExternFunc(symbol), args, ty_args=nothing))
        builder.emit_func_output(wide)
    assert on_slices(builder.get(), {"sorted"})
    with pytest.raises(NotSliceable, match="which sorted reads or writes"):
        on_slices(builder.get(), {"others"})
