"""Kernel libraries on host memory: numbers against the float64 reference, through save and load."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import tvm_ffi
from hypothesis import given, settings
from hypothesis import strategies as st
from support import Fakes, host_arrays, kernel_entry, saved_and_loaded, small

from convoy import errors
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload
from convoy.measure import reference
from convoy.runtime import create_module

WORKLOADS = [
    small(),
    small(stride=(2, 1), padding=(0, 1, 2, 0)),
    small(dilation=(2, 2), padding=(2, 2, 2, 2)),
    small(groups=2),
    small(groups=4, k=4),
    small(r=1, s=1, padding=(0, 0, 0, 0)),
    small(epilogue=Epilogue(residual=True, bias=True)),
    small(epilogue=Epilogue(bias=True, activation="clip", clip_min=-0.5, clip_max=0.25)),
    small(epilogue=Epilogue(bias=True, affine_relu=True)),
    small(epilogue=Epilogue(residual=True, affine_relu=True, affine_only=True)),
    small("matmul", h=1, w=1, r=1, s=1, padding=(0, 0, 0, 0)),
    small("dgrad", stride=(2, 2)),
    small("dgrad", groups=2, dilation=(1, 2), padding=(1, 2, 0, 1)),
    small("wgrad", stride=(1, 2), padding=(1, 0, 0, 1)),
    small("wgrad", groups=4),
]


def call(module, arrays: list[np.ndarray], symbol: str = "f") -> None:
    module[symbol](*[tvm_ffi.from_dlpack(array) for array in arrays])


def expected(workload: Workload, arrays: list[np.ndarray]) -> list[np.ndarray]:
    names = [name for name, _, _ in workload.operand_shapes()]
    return reference.full(workload, dict(zip(names, arrays, strict=True)))


def check(workload: Workload, arrays: list[np.ndarray]) -> None:
    outputs = arrays[-workload.num_outputs :]
    for got, wanted in zip(outputs, expected(workload, arrays), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def build(workload: Workload, fakes: Fakes, **more: object):
    return create_module([kernel_entry(workload, fakes.blobs, arch=0, **more)], fakes.blobs)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.key)
def test_computes_what_the_workload_says(workload: Workload, fakes: Fakes) -> None:
    arrays = host_arrays(workload)
    call(build(workload, fakes), arrays)
    check(workload, arrays)


@pytest.mark.parametrize("out_dtype", ["int8", "int32"])
def test_integers_have_their_dtypes(out_dtype: str, fakes: Fakes) -> None:
    """Operands of the dtypes and shapes that the workload has in Python are taken, no others."""
    clip = Epilogue(bias=True, activation="clip", clip_max=255)
    epilogue = clip if out_dtype == "int8" else Epilogue(bias=True)
    types = {"dtype": "int8", "out_dtype": out_dtype, "acc_dtype": "int32"}
    workload = small(epilogue=epilogue, **types)
    arrays = [np.zeros(shape, dtype) for _, shape, dtype in workload.operand_shapes()]
    arrays[-1] = arrays[-1].astype("float32")
    with pytest.raises(ValueError, match=rf"argument 3 \(y\).*expected compact {out_dtype}"):
        call(build(workload, fakes), arrays)


def test_saved_and_loaded_module_computes_the_same(fakes: Fakes) -> None:
    workload = small(epilogue=Epilogue(bias=True))
    loaded = saved_and_loaded(build(workload, fakes))
    arrays = host_arrays(workload)
    call(loaded, arrays)
    check(workload, arrays)


@settings(max_examples=25)
@given(data=st.data())
def test_any_workload(data: st.DataObject, fakes: Fakes) -> None:
    size = st.integers(1, 4)
    groups = data.draw(st.integers(1, 3))
    dilation = (data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2)))
    r, s = data.draw(size), data.draw(size)
    workload = small(
        data.draw(st.sampled_from(["fprop", "dgrad", "wgrad"])),
        n=data.draw(st.integers(1, 2)),
        h=data.draw(st.integers(dilation[0] * (r - 1) + 1, 9)),
        w=data.draw(st.integers(dilation[1] * (s - 1) + 1, 9)),
        c=groups * data.draw(size),
        k=groups * data.draw(size),
        r=r,
        s=s,
        groups=groups,
        dilation=dilation,
        stride=(data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))),
        padding=tuple(data.draw(st.integers(0, 2)) for _ in range(4)),
    )
    arrays = host_arrays(workload)
    call(build(workload, fakes), arrays)
    check(workload, arrays)


def test_functions_of_two_libraries_stay_apart(fakes: Fakes) -> None:
    """Every kernel library defines the same names; file numbers are reused while loading."""
    content = next(iter(fakes.blobs.values()))
    marked = content + b"\0another library"
    blobs = {**fakes.blobs, hashlib.sha256(marked).hexdigest(): marked}
    workload = small()
    entries = [
        kernel_entry(workload, {name: blobs[name]}, symbol, arch=0)
        for symbol, name in zip("ab", blobs, strict=True)
    ]
    module = create_module(entries, blobs)
    for symbol in "ab":
        arrays = host_arrays(workload, seed=ord(symbol))
        call(module, arrays, symbol)
        check(workload, arrays)


def test_pointers_beyond_the_cache_bound(fakes: Fakes) -> None:
    workload = small(n=1, h=3, w=3)
    module = build(workload, fakes)
    for seed in range(200):
        arrays = host_arrays(workload, seed)
        call(module, arrays)
        check(workload, arrays)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a[:-1], "takes 3 tensors; got 2"),
        (
            lambda a: [a[0].astype(np.float16), *a[1:]],
            r"float16\(2,5,6,4\).*expected compact float32",
        ),
        (lambda a: [a[0][:, :, :, :2], *a[1:]], r"\(2,5,6,2\) with strides"),
        (lambda a: [np.swapaxes(a[0], 1, 2).copy(), *a[1:]], r"\(2,6,5,4\)"),
        (lambda a: [np.asfortranarray(a[0]), *a[1:]], "with strides"),
    ],
)
def test_wrong_arguments_are_refused(change, message: str, fakes: Fakes) -> None:
    module = build(small(), fakes)
    with pytest.raises((TypeError, ValueError), match=message):
        call(module, change(host_arrays(small())))


def test_misaligned_pointer_is_refused(fakes: Fakes) -> None:
    workload = small(c=1, k=1)
    arrays = host_arrays(workload)
    raw = np.zeros(arrays[0].size + 1, np.float32)
    arrays[0] = raw[1:].reshape(arrays[0].shape) if raw.ctypes.data % 16 == 0 else arrays[0]
    if arrays[0].ctypes.data % 16 == 0:
        arrays[0] = np.zeros(arrays[0].size + 4, np.float32)[1:-3].reshape(arrays[0].shape)
    with pytest.raises(ValueError, match="not aligned to 16 bytes"):
        call(build(workload, fakes), arrays)


def test_missing_library(fakes: Fakes) -> None:
    entry = kernel_entry(small(), fakes.blobs, arch=0)
    with pytest.raises(errors.CorruptArtefact, match="does not carry"):
        create_module([entry], {})


def test_library_that_is_no_library(fakes: Fakes) -> None:
    module = create_module([kernel_entry(small(), {"ab" * 32: b""}, arch=0)], {"ab" * 32: b"junk"})
    with pytest.raises(errors.CorruptArtefact, match="cannot be opened"):
        call(module, host_arrays(small()))


def test_kernel_that_refuses_its_problem(fakes: Fakes) -> None:
    with pytest.raises(errors.CorruptArtefact, match="swizzle 99 does not exist"):
        call(build(small(), fakes, swizzle=99), host_arrays(small()))


def test_module_for_a_gpu_refuses_host_tensors(fakes: Fakes) -> None:
    module = create_module([kernel_entry(small(), fakes.blobs, arch=90)], fakes.blobs)
    with pytest.raises(errors.WrongDevice, match=r"compute capability 9\.0"):
        call(module, host_arrays(small()))


def test_prepare_then_call(fakes: Fakes) -> None:
    module = build(small(), fakes)
    module["convoy_prepare"]()
    arrays = host_arrays(small())
    call(module, arrays)
    check(small(), arrays)
