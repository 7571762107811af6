"""relu, clip, max and min of NaN: kept as PyTorch and ONNX do, dropped in Relay as TVM does."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax, te
from tvm.relax import op

import convoy
from convoy import relay
from convoy.ir.device import Device
from convoy.lower.compile import build_kernels
from convoy.lower.target import cuda_target
from convoy.tir import keep_nan
from convoy.tir.rules import rescheduled, schedule_kernels

SPECIAL = np.array([np.nan, -np.inf, np.inf, -1.5, 0.0, 2.5], "float32")


def network(emit: Callable[..., relax.Expr], *arrays: np.ndarray) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"x{i}", relax.TensorType(a.shape, str(a.dtype))) for i, a in enumerate(arrays)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(emit(*params))
        builder.emit_func_output(result)
    return builder.get()


def run(emit: Callable[..., relax.Expr], *arrays: np.ndarray) -> np.ndarray:
    built = convoy.build(network(emit, *arrays), "llvm", cache=False)
    return np.asarray(built.session()(*arrays)[0])


def mixed(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    """Numbers with about a fifth of NaN and infinities among them."""
    x = rng.normal(size=shape)
    special = rng.choice(SPECIAL, size=shape)
    return np.where(rng.random(shape) < 0.2, special, x).astype(dtype)


UNARY = {
    "relu": (op.nn.relu, lambda x: np.maximum(x, 0)),
    "clip": (lambda x: op.clip(x, -1.0, 2.0), lambda x: np.clip(x, -1, 2)),
    "max": (lambda x: op.max(x, axis=1), lambda x: x.max(1)),
    "min": (lambda x: op.min(x, axis=[-1, 0], keepdims=True), lambda x: x.min((0, 2), keepdims=1)),
    "max of all": (op.max, lambda x: x.max()),
    "argmax": (lambda x: op.argmax(x, 1), lambda x: x.argmax(1)),
    "argmin": (lambda x: op.argmin(x, -1, True), lambda x: x.argmin(-1, keepdims=True)),
    "argmax of all": (op.argmax, lambda x: x.argmax()),
    "sort": (lambda x: op.sort(x, 1), lambda x: np.sort(x, 1)),
    "argsort": (lambda x: op.argsort(x, 0), lambda x: np.argsort(x, 0, kind="stable")),
    "topk": (lambda x: op.topk(x, 3, 1, "values"), lambda x: np.sort(x, 1)[:, :-4:-1]),
}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", UNARY)
def test_nan_is_kept(name: str, dtype: str) -> None:
    emit, want = UNARY[name]
    x = mixed(np.random.default_rng(len(name)), (3, 5, 7), dtype)
    np.testing.assert_array_equal(run(emit, x), want(x))


@pytest.mark.parametrize(
    ("emit", "want"), [(op.maximum, np.maximum), (op.minimum, np.minimum)], ids=["max", "min"]
)
def test_nan_of_either_operand_is_kept(emit: Any, want: Any) -> None:
    a, b = np.array(list(itertools.product(SPECIAL, SPECIAL))).T.astype("float32")
    np.testing.assert_array_equal(run(emit, a, b), want(a, b))
    rng = np.random.default_rng(3)
    a, b = mixed(rng, (4, 1, 6)), mixed(rng, (5, 1))
    np.testing.assert_array_equal(run(emit, a, b), want(a, b))


def test_integers_are_compared_as_before() -> None:
    x = np.array([[-3, 4], [7, -9]], "int32")
    np.testing.assert_array_equal(run(lambda v: op.clip(v, -4, 5), x), np.clip(x, -4, 5))
    np.testing.assert_array_equal(run(lambda v: op.max(v, axis=0), x), x.max(0))


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_pooling_keeps_nan(data: st.DataObject) -> None:
    """Any layout, stride, dilation and padding, in one to three axes."""
    rank = data.draw(st.integers(1, 3))
    sizes = st.lists(st.integers(1, 3), min_size=rank, max_size=rank)
    window, stride, dilation = (data.draw(sizes) for _ in range(3))
    padding = [data.draw(st.integers(0, w // 2)) for w in window * 2]
    spatial = "DHW"[-rank:]
    layout = data.draw(st.sampled_from([f"N{spatial}C", f"NC{spatial}"]))
    reach = [(w - 1) * d + 1 for w, d in zip(window, dilation, strict=True)]
    extent = [size + data.draw(st.integers(0, 4)) for size in reach]
    shape = (2, *extent, 3) if layout[1] != "C" else (2, 3, *extent)
    x = mixed(np.random.default_rng(data.draw(st.integers(0, 99))), shape)

    def emit(v: relax.Expr) -> relax.Expr:
        pool = getattr(op.nn, f"max_pool{rank}d")
        return pool(
            v, pool_size=window, strides=stride, dilation=dilation, padding=padding, layout=layout
        )

    first = layout.index(spatial[0])
    pads = [(0, 0)] * x.ndim
    pads[first : first + rank] = zip(padding[:rank], padding[rank:], strict=True)
    padded = np.pad(x, pads, constant_values=-np.inf)
    axes = tuple(range(first, first + rank))
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, axes)
    steps = [slice(None)] * x.ndim
    for axis, step in zip(axes, stride, strict=True):
        steps[axis] = slice(None, None, step)
    inner = tuple(slice(None, None, d) for d in dilation)
    want = windows[(*steps, *inner)].max(tuple(range(-rank, 0)))
    np.testing.assert_array_equal(run(emit, x), want)


def test_relay_drops_nan_as_tvm_does() -> None:
    x = np.array([np.nan, -1, 1, np.inf], "float32")
    for body, want in (
        ("nn.relu(%x)", [0, 0, 1, np.inf]),
        ("clip(%x, a_min=0f, a_max=6f)", [6, 0, 1, 6]),
        ("maximum(%x, 0f)", [0, 0, 1, np.inf]),
    ):
        text = f'#[version = "0.0.5"]\ndef @main(%x: Tensor[(4), float32]) {{ {body} }}'
        built = convoy.build(relay.to_relax(relay.parse(text), {}), "llvm", cache=False)
        np.testing.assert_array_equal(built.session()(x)[0], np.array(want, "float32"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_cuda_source(dtype: str) -> None:
    """A reduction is split between threads as TVM's own is, and nested operands appear once."""
    target = cuda_target(Device())
    with target:
        x = te.placeholder((64, 1000), dtype, name="x")
        k = te.reduce_axis((0, 1000), name="k")
        y = te.compute((64,), lambda i: keep_nan.largest(x(i, k), axis=[k]), name="y")

        def deep(i: Any) -> Any:
            value = y(i)
            for bound in range(40):
                choose = keep_nan.larger if bound % 2 else keep_nan.smaller
                value = choose(value, tvm.tirx.const(float(bound), dtype))
            return value

        z = te.compute((64,), deep, name="z")
        mod = schedule_kernels(target)(tvm.IRModule({"kernel": te.create_prim_func([x, z])}))
    assert not rescheduled(mod)
    try:
        built = build_kernels(mod, target)
    except Exception as err:
        pytest.skip(f"no CUDA compiler: {err}"[:200])
    source = built.imports[0].inspect_source()
    assert "__shared__" in source  # partial results of threads
    assert len(source) < 20000
    assert "nan" in source.lower()
    assert "inff" not in source  # how TVM writes an infinity of bfloat16


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_constants_of_cuda_source(value: float) -> None:
    x = te.placeholder((64,), "bfloat16", name="x")
    constant = tvm.tirx.const(value, "bfloat16")
    y = te.compute((64,), lambda i: te.if_then_else(i < 3, constant, x(i)), name="y")
    target = cuda_target(Device())
    with target:
        mod = schedule_kernels(target)(tvm.IRModule({"kernel": te.create_prim_func([x, y])}))
    source = build_kernels(mod, target).imports[0].inspect_source()
    assert "__int_as_float(0x7f" in source
    assert not re.search(r"\b(inff|nanf)\b", source)
