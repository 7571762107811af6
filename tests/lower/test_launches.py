"""The host's part of generated kernels as a table of launches."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T

from convoy.errors import InvalidOption
from convoy.lower import launches
from convoy.lower.compile import build_kernels
from convoy.runtime.library import function

TARGET = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})


@T.prim_func(s_tir=True)
def two_kernels(x: T.Buffer((4, 32), "float32"), y: T.Buffer((128,), "float32")):
    T.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True})
    for i in T.thread_binding(4, thread="blockIdx.x"):
        for j in T.thread_binding(32, thread="threadIdx.x"):
            with T.sblock("double"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi * 32 + vj] = x[vi, vj] * T.float32(2)
    for i in T.thread_binding(128, thread="threadIdx.x"):
        with T.sblock("add"):
            v = T.axis.remap("S", [i])
            y[v] = y[v] + T.float32(1)


@T.prim_func(s_tir=True)
def own_memory(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
    T.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True})
    between = T.sblock_alloc_buffer((64,), "float32")
    for i in T.thread_binding(64, thread="threadIdx.x"):
        with T.sblock("double"):
            v = T.axis.remap("S", [i])
            between[v] = x[v] * T.float32(2)
    for i in T.thread_binding(64, thread="threadIdx.x"):
        with T.sblock("reverse"):
            v = T.axis.remap("S", [i])
            y[v] = between[63 - v]


def build(**functions: tirx.PrimFunc) -> tvm.runtime.Module:
    named = {name: func.with_attr("global_symbol", name) for name, func in functions.items()}
    return build_kernels(tvm.IRModule(named), TARGET)


def test_launches_are_in_order_with_constants_and_tensors() -> None:
    library = build(two=two_kernels)
    assert library.kind == "convoy.launches" and [m.kind for m in library.imports] == ["cuda"]
    two = json.loads(library.inspect_source())["functions"]["two"]
    assert two["parameters"] == 2
    (first, second), x, y = two["launches"], {"tensor": 0}, {"tensor": 1}
    assert sorted(map(str, first["arguments"])) == sorted(map(str, [x, y, 4, 32]))
    assert second["arguments"] == [y, 128]
    source = library.imports[0].inspect_source()
    assert all(f"{launch['kernel']}(" in source for launch in (first, second))


def test_a_function_that_allocates_is_compiled() -> None:
    library = build(two=two_kernels, own=own_memory)
    assert library.kind == "convoy.launches"
    assert [m.kind for m in library.imports] == ["llvm"]
    assert list(json.loads(library.inspect_source())["functions"]) == ["two"]
    (code,) = library.imports
    assert code.implements_function("own") and library.implements_function("own")
    assert library.implements_function("two") and not library.implements_function("three")
    assert {m.kind for m in code.imports} == {"cuda"}


@T.prim_func(s_tir=True)
def scale(x_ptr: T.handle("float32"), y_ptr: T.handle("float32"), by: T.float32, size: T.int32):
    T.func_attr({"tirx.noalias": True})
    x = T.decl_buffer((8,), data=x_ptr)
    y = T.decl_buffer((8,), data=y_ptr)
    for i in range(size):
        y[i] = x[i] * by


def test_a_saved_table_launches_with_addresses_and_constants(tmp_path: Path) -> None:
    """The kernel is one of the CPU."""
    kernel = tvm.compile(tvm.IRModule({"scale": scale.with_attr("global_symbol", "scale")}), "llvm")
    calls = [
        {"kernel": "scale", "arguments": [{"tensor": 0}, {"tensor": 1}, 3.0, 8]},
        {"kernel": "scale", "arguments": [{"tensor": 1}, {"tensor": 1}, 2.0, 5]},
    ]
    library = launches.module_of({"run": {"parameters": 2, "launches": calls}})
    library.import_module(getattr(kernel, "mod", kernel))
    file = tmp_path / "kernels.so"
    library.export_library(str(file))
    loaded = [tvm.runtime.load_module(str(file))]
    for one in loaded:
        loaded.extend(one.imports)
    (again,) = [one for one in loaded if one.kind == "convoy.launches"]
    assert again.inspect_source() == library.inspect_source()
    x, y = (tvm.runtime.tensor(np.arange(8, dtype="float32")) for _ in range(2))
    for run in (library["run"], again["run"]):
        y.copyfrom(np.zeros(8, "float32"))
        run(x, y)
        np.testing.assert_array_equal(y.numpy(), np.arange(8) * ([6] * 5 + [3] * 3))
    with pytest.raises(TypeError, match="got 1 tensors, expected 2"):
        library["run"](x)
    assert library.implements_function("scale") and not library.implements_function("rotate")


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        '{"functions": {"f": 1}}',
        '{"functions": {"f": {"parameters": 1}}}',
        '{"functions": {"f": {"parameters": 1, "launches": [1]}}}',
        '{"functions": {"f": {"parameters": 1, "launches": [{"kernel": "k"}]}}}',
        '{"functions": {"f": {"parameters": 1, "launches":'
        ' [{"kernel": "k", "arguments": ["x"]}]}}}',
        '{"functions": {"f": {"parameters": 1, "launches":'
        ' [{"kernel": "k", "arguments": [{"tensor": 1}]}]}}}',
        '{"functions": {"f": {"parameters": 1, "launches":'
        ' [{"kernel": "k", "arguments": [{"tensor": -1}]}]}}}',
    ],
)
def test_a_table_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption):
        function("launches.create")(text)


def test_a_kernel_that_is_missing_is_named() -> None:
    table = {"parameters": 0, "launches": [{"kernel": "gone", "arguments": []}]}
    library = function("launches.create")(json.dumps({"functions": {"f": table}}))
    with pytest.raises(RuntimeError, match="kernel 'gone' is in none of the imported modules"):
        library["f"]()
