"""Kernels on slices of wider tensors against the same kernels on compact ones, on the GPU: equal
results bit for bit, and nothing written beside them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tvm_ffi

from convoy.backends import registry
from convoy.backends.load import load_binary, load_candidate
from convoy.ir.candidate import Candidate, Decline
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload
from convoy.runtime import present_device
from convoy.runtime.library import function

pytestmark = pytest.mark.gpu

#: Elements in front of a slice's rows, and behind them.
FRONT, BEHIND = 8, 16
WORKLOADS = [
    Workload("fprop", 2, 14, 13, 64, 96, 3, 3, padding=(1, 1, 1, 1)),
    Workload("fprop", 2, 15, 15, 72, 40, 3, 3, stride=(2, 2), padding=(1, 1, 1, 1)),
    Workload("fprop", 3, 9, 7, 64, 64, 3, 3, dilation=(2, 2), padding=(2, 2, 2, 2)),
    Workload("fprop", 4, 12, 12, 24, 136, 1, 1),
    Workload("fprop", 2, 9, 9, 8, 32, 7, 7),  # a row of taps is read as one
    Workload("matmul", 300, 1, 1, 128, 264, 1, 1),
    *(
        Workload("fprop", 2, 17, 19, 48, 48, r, r, (step, step), (r // 2,) * 4, groups=48)
        for r, step in ((3, 1), (3, 2), (5, 1), (7, 2), (9, 1))
    ),
    Workload("fprop", 2, 14, 13, 48, 96, 3, 3, padding=(1, 1, 1, 1), groups=3),
]
EPILOGUES = [
    Epilogue(),
    Epilogue(bias=True, activation="relu"),
    Epilogue(bias=True, activation="silu"),
    Epilogue(bias=True, residual=True, activation="relu"),
]


def on_gpu(array: np.ndarray) -> tvm_ffi.Tensor:
    tensor = function("cuda.empty")(array.shape, str(array.dtype), 0)
    function("cuda.copy")(tvm_ffi.from_dlpack(array), tensor)
    return tensor


def on_host(tensor: tvm_ffi.Tensor, like: np.ndarray) -> np.ndarray:
    array = np.empty_like(like)
    function("cuda.copy")(tensor, tvm_ffi.from_dlpack(array))
    return array


def check(workload: Workload, candidate: Candidate, device: Device, seed: int) -> bool:
    """Whether the candidate takes slices, which are then compared."""
    backend = registry.get(candidate.backend)
    names = backend.sliceable(workload, candidate, device)
    if isinstance(names, Decline):
        return False
    rng = np.random.default_rng(seed)
    arrays = {
        name: rng.uniform(-1, 1, shape).astype(dtype)
        for name, shape, dtype in workload.operand_shapes()
    }
    compact = {name: on_gpu(array) for name, array in arrays.items()}
    load_candidate(backend, workload, candidate, device)(*compact.values())
    want = on_host(compact["y"], arrays["y"])
    slice_of = tvm_ffi.get_global_func("convoy.streams.slice")
    tensors, rows = [], {}
    for name, array in arrays.items():
        if name not in names:
            tensors.append(compact[name])
            continue
        rows[name] = FRONT + array.shape[-1] + BEHIND
        wide = rng.uniform(-1, 1, (*array.shape[:-1], rows[name])).astype(array.dtype)
        wide[..., FRONT:-BEHIND] = array
        memory = on_gpu(wide)
        shape, dtype = tvm_ffi.Shape(array.shape), tvm_ffi.dtype(str(array.dtype))
        offset = FRONT * array.itemsize
        tensors.append(slice_of(memory, offset, shape, dtype, rows[name]))
    sliced = load_binary(backend.build_sliced(workload, candidate, device, rows), device)
    sliced(*tensors)
    got = on_host(memory, wide)  # of the output, which is the last operand
    np.testing.assert_array_equal(got[..., FRONT:-BEHIND], want, candidate.key)
    np.testing.assert_array_equal(got[..., :FRONT], wide[..., :FRONT], candidate.key)
    np.testing.assert_array_equal(got[..., -BEHIND:], wide[..., -BEHIND:], candidate.key)
    return True


@pytest.mark.parametrize("backend", ["cutlass", "cublaslt", "hopper", "depthwise"])
@pytest.mark.parametrize("epilogue", EPILOGUES, ids=lambda e: e.name or "plain")
def test_slices(epilogue: Epilogue, backend: str) -> None:
    device = present_device()
    assert device is not None
    compared = 0
    for seed, workload in enumerate(WORKLOADS):
        workload = dataclasses.replace(workload, epilogue=epilogue)
        (answer,) = registry.get(backend).propose_all([workload], device, compiled=True)
        if not isinstance(answer, Decline):
            compared += sum(check(workload, candidate, device, seed) for candidate in answer)
    if backend == "cublaslt" and epilogue.activation == "silu":
        assert not compared, "which has no such epilogue"
    elif device.arch == 90 or backend in ("cublaslt", "depthwise"):
        assert compared
