"""The emulator itself: kernels as TVM writes them, right ones and wrong ones."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import tvm
import tvm_ffi

from .kernels import compile_source, emulated, turns

SUM = """
extern "C" __global__ void __launch_bounds__(96) sum(float* __restrict__ x, float* __restrict__ y) {
  __shared__ alignas(64) float parts[3];
  float sum = x[blockIdx.x * 96 + threadIdx.x];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  BARRIER;
  if (threadIdx.x == 0) y[blockIdx.x] = parts[0] + parts[1] + parts[2];
}
"""


def errors(barrier: str, backwards: bool) -> np.ndarray:
    """Differences of four sums from NumPy's, with a statement in the barrier's place."""
    source = SUM.replace("BARRIER", barrier)
    module = compile_source(source, {"sum": ("blockIdx.x", "threadIdx.x")})
    x, y = np.arange(4 * 96, dtype="float32").reshape(4, 96), np.full(4, np.nan, "float32")
    with turns(backwards):
        module["sum"](*(ctypes.c_void_p(a.ctypes.data) for a in (x, y)), 4, 96)
    return y - x.sum(1)


@pytest.mark.parametrize("backwards", [False, True])
def test_threads_meet(backwards: bool) -> None:
    assert (errors("__syncthreads()", backwards) == 0).all()


def test_a_missing_barrier_shows() -> None:
    """The first thread sums before the last two warps have written."""
    assert np.isnan(errors("", backwards=False)).all()


def test_barriers_that_not_all_threads_reach() -> None:
    with pytest.raises(RuntimeError, match="wait at different barriers"):
        errors("if (threadIdx.x == 0) __syncwarp(); else __syncthreads()", backwards=False)


def test_no_gpu_is_reported() -> None:
    """A test that follows in the same process makes targets as on a machine without GPU."""
    with emulated():
        assert tvm_ffi.get_global_func("device_api.cuda", allow_missing=True) is not None
        assert not tvm.cuda(0).exist
        assert tvm.target.Target("cuda").kind.name == "cuda"
