"""Sums on a CPU in tiles: the same results, bit for bit, as one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx

import convoy
from convoy.lower import codegen
from convoy.tir import cpu
from convoy.tir.rules import without_source

Case = Callable[[], tirx.PrimFunc]


def conv(size: int, channels: int, kernels: int, window: int, dtype: str = "float32") -> Case:
    def build() -> tirx.PrimFunc:
        x = te.placeholder((2, size, size, channels), dtype, name="x")
        w = te.placeholder((kernels, window, window, channels), dtype, name="w")
        half, far = window // 2, size + window // 2
        padded = te.compute(
            (2, size + window - 1, size + window - 1, channels),
            lambda n, i, j, c: tirx.if_then_else(
                tirx.all(i >= half, i < far, j >= half, j < far),
                x[n, i - half, j - half, c],
                tirx.const(0, dtype),
            ),
            name="padded",
        )
        r, s = te.reduce_axis((0, window), name="r"), te.reduce_axis((0, window), name="s")
        c = te.reduce_axis((0, channels), name="c")
        y = te.compute(
            (2, size, size, kernels),
            lambda n, i, j, k: te.sum(padded[n, i + r, j + s, c] * w[k, r, s, c], axis=[r, s, c]),
            name="y",
        )
        relu = te.compute(y.shape, lambda *at: te.max(y[at], tirx.const(0, dtype)), name="relu")
        return te.create_prim_func([x, w, relu])

    return build


def product(rows: int, columns: int, depth: int, transposed: bool = False) -> Case:
    def build() -> tirx.PrimFunc:
        x = te.placeholder((rows, depth), "float32", name="x")
        w = te.placeholder((columns, depth), "float32", name="w")
        k = te.reduce_axis((0, depth), name="k")
        shape = (columns, rows) if transposed else (rows, columns)

        def one(i: tirx.Var, j: tirx.Var) -> tirx.PrimExpr:
            row, column = (j, i) if transposed else (i, j)
            return te.sum(x[row, k] * w[column, k], axis=k)

        return te.create_prim_func([x, w, te.compute(shape, one, name="y")])

    return build


def pool(reduce: Callable[..., tirx.PrimExpr], size: int, channels: int) -> Case:
    def build() -> tirx.PrimFunc:
        x = te.placeholder((4, size + 2, size + 2, channels), "float32", name="x")
        r, s = te.reduce_axis((0, 3), name="r"), te.reduce_axis((0, 3), name="s")
        y = te.compute(
            (4, size, size, channels),
            lambda n, i, j, c: reduce(x[n, i + r, j + s, c], axis=[r, s]),
            name="y",
        )
        return te.create_prim_func([x, y])

    return build


TILED = {
    "3x3": conv(14, 32, 24, 3),
    "prime": conv(13, 20, 42, 3),
    "1x1": conv(28, 48, 40, 1),
    "integers": conv(14, 32, 24, 3, "int32"),
    "matrix": product(49, 64, 500),
    "vector": product(1, 1000, 1100),
    "transposed": product(64, 49, 500, transposed=True),
    "sum pool": pool(te.sum, 56, 16),
    "max pool": pool(te.max, 56, 16),
}
KEPT = {
    "small": conv(6, 8, 8, 3),
    "eleven channels": conv(40, 32, 11, 3),
    "half": conv(14, 32, 24, 3, "float16"),
}


def run(func: tirx.PrimFunc, arrays: list[np.ndarray]) -> np.ndarray:
    named = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    tvm.compile(named, "llvm")["main"](*tensors)
    return tensors[-1].numpy()


@pytest.mark.parametrize("name", TILED)
def test_results_are_the_same(name: str) -> None:
    func = TILED[name]().with_attr("op_pattern", 4)
    tiled = cpu.scheduled(func)
    assert tiled.attrs["op_pattern"] == 4
    mod = without_source(tvm.IRModule({"main": tiled}))  # TVM prints no function in another
    text = mod["main"].script()
    assert "T.parallel" in text and "T.vectorized" in text
    rng = np.random.default_rng(0)
    arrays = [
        (rng.standard_normal([int(n) for n in p.shape]) * 4).astype(str(p.dtype))
        for p in func.params
    ]
    if name == "max pool":  # the operand that wins against NaN is the same
        arrays[0][rng.random(arrays[0].shape) < 0.1] = np.nan
    np.testing.assert_array_equal(run(tiled, arrays), run(func, arrays))


@pytest.mark.parametrize("name", KEPT)
def test_other_kernels_are_left_as_they_are(name: str) -> None:
    func = KEPT[name]()
    assert cpu.scheduled(func).same_as(func)


def test_a_function_with_a_schedule_keeps_it() -> None:
    func = TILED["3x3"]().with_attr("tirx.is_scheduled", True)
    assert cpu.scheduled(func).same_as(func)


def test_a_function_that_tvm_cannot_schedule_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> bool:
        raise tvm.error.InternalError("no such primitive")

    func = TILED["3x3"]()
    monkeypatch.setattr(cpu, "_tile", fail)
    assert cpu.scheduled(func).same_as(func)


def test_tiles_that_do_not_compile_are_taken_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def without_tiles(real: Callable[..., Any]) -> Callable[..., Any]:
        def build(mod: tvm.IRModule, *args: Any, **options: Any) -> Any:
            if any("T.parallel" in func.script() for func in mod.functions.values()):
                raise tvm.error.InternalError("too hard for a test")
            return real(mod, *args, **options)

        return build

    monkeypatch.setattr(tvm, "compile", without_tiles(tvm.compile))
    monkeypatch.setattr(codegen, "build", without_tiles(codegen.build))
    x = np.random.default_rng(0).standard_normal((64, 300), "float32")
    w = np.random.default_rng(1).standard_normal((96, 300), "float32")
    module = network(x.shape, w)
    with caplog.at_level("WARNING", "convoy"):
        (got,) = convoy.build(module, "llvm", cache=False).session()(x)
    np.testing.assert_allclose(got, x @ w.T, rtol=1e-4, atol=1e-4)
    (line,) = caplog.messages
    assert "without tiles" in line and "too hard for a test" in line


def network(shape: tuple[int, int], weights: np.ndarray) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        columns = relax.op.permute_dims(relax.const(weights))
        builder.emit_func_output(builder.emit(relax.op.matmul(x, columns)))
    return builder.get()
