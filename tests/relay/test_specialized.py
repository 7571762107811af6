"""Code that is compiled for the sizes that occur, against numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy import relay
from convoy.errors import ConvoyError, DynamicShape, InvalidOption

from .running import run_graph

ANY = relay.Any()
RNG = np.random.default_rng(11)


def compiled(params: list[Any], body: Any) -> Any:
    return relay.create_executor("vm").evaluate(relay.Function(params, body))


def uniform(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype("float32")


X = relay.var("x", shape=(ANY, ANY))
Y = relay.var("y", shape=(ANY, ANY))
ADD = compiled([X, Y], relay.add(X, Y))


@given(st.sampled_from([(1, 3), (2, 3), (2, 1), (1, 1)]), st.sampled_from([(2, 3), (1, 3), (2, 1)]))
@settings(max_examples=8, deadline=None)
def test_a_size_of_one_broadcasts(a: tuple[int, int], b: tuple[int, int]) -> None:
    x, y = uniform(*a), uniform(*b)
    np.testing.assert_allclose(ADD(x, y).numpy(), x + y, 1e-6)


def test_sizes_that_do_not_fit() -> None:
    with pytest.raises(ConvoyError, match=r"Tensor\[\(2, 3\), float32\]"):
        ADD(uniform(2, 3), uniform(3, 3))


def test_shapes_from_arguments() -> None:
    x, s = relay.var("x", shape=(2, 6)), relay.var("s", shape=(2,), dtype="int64")
    k = relay.var("k", shape=(), dtype="int32")
    one = relay.const(1, "int64")
    body = relay.Tuple(
        [
            relay.reshape(x, s),
            relay.tile(x, s),
            relay.zeros(relay.add(s, one), "float32"),
            relay.topk(x, k, ret_type="values"),
            relay.arange(k, dtype="int32"),
            relay.strided_slice(x, relay.const([0, 1]), s),
            relay.trilu(x, k),
        ]
    )
    run = compiled([x, s, k], body)
    value = uniform(2, 6)
    for shape, count in (((4, 3), 2), ((1, 12), 3)):
        got = [t.numpy() for t in run(value, np.array(shape), np.int32(count))]
        want = [
            value.reshape(shape),
            np.tile(value, shape),
            np.zeros(np.add(shape, 1), "float32"),
            -np.sort(-value)[:, :count],
            np.arange(count, dtype="int32"),
            value[0 : shape[0], 1 : shape[1]],
            np.triu(value, count),
        ]
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, 1e-6)
            assert a.shape == b.shape


def test_shapes_of_constants_are_folded() -> None:
    """relay.build takes them: nothing depends on an input's value."""
    x, y = relay.var("x", shape=(2, 6)), relay.var("y", shape=(3, 4))
    doubled = relay.multiply(relay.shape_of(y), relay.const([1, 1]))
    mod = relay.IRModule.from_expr(relay.Function([x, y], relay.reshape(x, doubled)))
    value = uniform(2, 6)
    (got,) = run_graph(mod, {"x": value})
    np.testing.assert_array_equal(got, value.reshape(3, 4))
    s = relay.var("s", shape=(2,), dtype="int64")
    mod = relay.IRModule.from_expr(relay.Function([x, s], relay.reshape(x, s)))
    (got,) = run_graph(mod, {"x": value}, params={"s": np.array([12, 1])})
    np.testing.assert_array_equal(got, value.reshape(12, 1))
    with pytest.raises(ConvoyError, match=r"computed from inputs.*relay\.vm\.compile"):
        relay.build(mod, "llvm")


def test_a_loop_that_grows_a_tensor() -> None:
    """The rows from `i` to 3, one after the other."""
    i, rows = relay.var("i", shape=(), dtype="int32"), relay.var("rows", shape=(ANY, 1))

    def body(i: Any, rows: Any) -> list[Any]:
        row = relay.reshape(relay.cast(i, "float32"), (1, 1))
        return [relay.add(i, relay.const(1)), relay.concatenate([rows, row], axis=0)]

    loop = relay.loops.while_loop(lambda i, rows: relay.less(i, relay.const(3)), [i, rows], body)
    start = relay.var("start", shape=(), dtype="int32")
    run = compiled([start], loop(start, relay.const(np.zeros((0, 1), "float32"))))
    for first in (0, 2):
        got = run(np.int32(first))[1].numpy()
        np.testing.assert_array_equal(got, np.arange(first, 3, dtype="float32")[:, None])


def test_a_branch_of_another_shape() -> None:
    x = relay.var("x", shape=(ANY,))
    total = relay.greater(relay.sum(x), relay.const(0.0))
    index = relay.argwhere(x)
    body = relay.If(
        total, relay.take(x, relay.squeeze(index, [1])), relay.const(np.ones(0, "float32"))
    )
    run = compiled([x], body)
    np.testing.assert_array_equal(run(np.array([0, 2, 0, 1], "float32")).numpy(), [2, 1])
    assert run(np.array([-1], "float32")).numpy().shape == (0,)


def test_arrays_are_cast_and_checked() -> None:
    x = relay.var("x", shape=(ANY, 2), dtype="uint8")
    run = compiled([x], relay.argwhere(x))
    np.testing.assert_array_equal(run(np.array([[0, 3]])).numpy(), [[0, 1]])
    with pytest.raises(InvalidOption, match=r"for input 'x'; expected Tensor\[\(\?, 2\), uint8\]"):
        run(np.zeros((1, 3)))
    y = relay.var("y", shape=(3,), dtype="uint8")
    mod = relay.IRModule.from_expr(relay.Function([y], relay.cast(y, "int32")))
    (got,) = run_graph(mod, {"y": np.array([1, 2, 3])})
    np.testing.assert_array_equal(got, np.array([1, 2, 3], "int32"))


def test_what_is_compiled_when_it_runs_is_saved(tmp_path: Path) -> None:
    x, y = relay.var("x", shape=(ANY,)), relay.var("y", shape=(ANY,))
    mod = relay.IRModule.from_expr(relay.Function([x, y], relay.argwhere(relay.add(x, y))))
    exe = relay.vm.compile(mod, "llvm", params={"y": np.array([0, 2], "float32")})
    path = tmp_path / "net.so"
    code, lib = exe.save()
    lib.export_library(path)
    loaded = relay.vm.Executable.load_exec(code, relay.load_module(path))
    got = relay.vm.VirtualMachine(loaded, tvm.cpu()).run(np.array([1, -2]))  # cast, as before
    np.testing.assert_array_equal(got.numpy(), [[0]])
    with pytest.raises(DynamicShape):
        relay.build(mod, "llvm")


def test_options_that_are_no_data_are_not_saved(tmp_path: Path) -> None:
    x = relay.var("x", shape=(ANY,))
    mod = relay.IRModule.from_expr(relay.Function([x], relay.argwhere(x)))
    exe = relay.vm.compile(mod, "llvm", records=object())
    with pytest.raises(InvalidOption, match="a object as records"):
        exe.export_library(tmp_path / "net.so")
