"""Kernels on slices of wider tensors against the same kernels on compact ones."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax import op
from tvm.script import tirx as T

from convoy.graph.slices import NotSliceable
from convoy.lower.lowered import Lowered
from convoy.tir.row_strides import with_row_strides
from convoy.tir.rules import schedule_kernels, simpler

from ..emulation.kernels import call, compile_kernels
from ..graph.kernels import TARGET, small_cases

#: Elements in front of and behind a slice's rows.
BESIDE = 8


def strides_of(func: tirx.PrimFunc) -> dict[int, int]:
    """Row strides of the tensors of which slices may be taken: those of whole vectors."""
    shapes = [tuple(map(int, param.shape)) for param in func.params]
    widths = [tvm.DataType(str(param.dtype)).itemsize for param in func.params]
    return {
        i: shape[-1] + 2 * BESIDE
        for i, (shape, width) in enumerate(zip(shapes, widths, strict=True))
        if len(shape) > 1 and shape[-1] * width % 16 == 0
    }


def scheduled() -> dict[str, tuple[tirx.PrimFunc, list[np.ndarray]]]:
    found = {}
    for case in small_cases():
        func, arrays = case.kernel()
        if strides_of(func):
            found[case.name] = (
                schedule_kernels(TARGET)(tvm.IRModule({"main": func}))["main"],
                arrays,
            )
    return found


def test_kernels_of_every_kind() -> None:
    kernels = scheduled()
    assert len(kernels) > 20
    functions = {name: func for name, (func, _) in kernels.items()}
    functions |= {
        f"{name}_strided": with_row_strides(func, strides_of(func))
        for name, (func, _) in kernels.items()
    }
    compiled = compile_kernels(functions, TARGET)
    for name, (func, arrays) in kernels.items():
        *_, want = call(compiled[name], *arrays)
        wide = []
        tensors = []
        for i, array in enumerate(arrays):
            rows = strides_of(func).get(i)
            shape = array.shape if rows is None else (*array.shape[:-1], rows)
            wide.append(np.full(shape, 55, array.dtype))
            own = wide[-1] if rows is None else wide[-1][..., BESIDE:-BESIDE]
            own[...] = array
            tensors.append(tvm_ffi.from_dlpack(own))
        compiled[f"{name}_strided"](*tensors)
        np.testing.assert_array_equal(np.from_dlpack(tensors[-1]), want, name)
        if len(arrays) - 1 in strides_of(func):
            assert (wide[-1][..., :BESIDE] == 55).all() and (wide[-1][..., -BESIDE:] == 55).all()


def test_a_simpler_schedule_has_the_same_strides() -> None:
    x, builder = relax.Var("x", relax.TensorType((2, 4, 16), "float32")), relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(op.tanh(x))
        builder.emit_func_output(y)
    (func,) = (f for _, f in Lowered.of(builder.get(), TARGET).calls.functions_items()
               if isinstance(f, tirx.PrimFunc))  # fmt: skip
    strided = with_row_strides(func, {0: 24})
    again = simpler(strided, TARGET, "tanh", "a test")
    assert [list(map(int, p.strides)) for p in again.params] == [[96, 24, 1], []]


def test_sizes_of_32_bits() -> None:
    @T.prim_func(s_tir=True)
    def twice(x: T.Buffer((4, 8), "float32"), y: T.Buffer((4, 8), "float32")) -> None:
        T.func_attr({"tirx.is_scheduled": True})
        for i in T.thread_binding(4, thread="blockIdx.x"):
            for j in T.thread_binding(8, thread="threadIdx.x"):
                y[i, j] = x[i, j] * T.float32(2)

    run = compile_kernels({"twice": with_row_strides(twice, {0: 24})}, TARGET)["twice"]
    wide, y = np.arange(96, dtype="float32").reshape(4, 24), np.zeros((4, 8), "float32")
    run(tvm_ffi.from_dlpack(wide[:, 8:16]), tvm_ffi.from_dlpack(y))
    np.testing.assert_array_equal(y, 2 * wide[:, 8:16])


def test_a_kernel_that_takes_an_address() -> None:
    @T.prim_func(s_tir=True)
    def flat(x: T.Buffer((4, 8), "float32"), y: T.Buffer((4, 8), "float32")) -> None:
        all_of_x = T.decl_buffer((32,), "float32", data=x.data)
        for i, j in T.grid(4, 8):
            with T.sblock("copy"):
                a, b = T.axis.remap("SS", [i, j])
                y[a, b] = all_of_x[a * 8 + b]

    with pytest.raises(NotSliceable, match="x of a kernel that takes its address"):
        with_row_strides(flat, {0: 16})
    assert with_row_strides(flat, {1: 16})
