"""`tvm.nd`: arrays on a device."""

from __future__ import annotations

from typing import Any

import tvm

from convoy.relay.params import to_array
from convoy.relay.tvm018.device import context, cpu, cuda, device, gpu
from convoy.relay.tvm018.modules import forward

__all__ = ["NDArray", "array", "context", "cpu", "cuda", "device", "empty", "gpu", "numpyasarray"]

NDArray = tvm.runtime.Tensor


def array(arr: Any, device: Any = None, mem_scope: Any = None, *, ctx: Any = None) -> Any:
    """Make a tensor on a device (default: the CPU) of an array, a number or another tensor.

    `ctx` is the name that `device` had before TVM 0.8.
    """
    del mem_scope
    return tvm.runtime.tensor(to_array(arr), device or ctx)


def empty(
    shape: Any,
    dtype: str = "float32",
    device: Any = None,
    mem_scope: Any = None,
    *,
    ctx: Any = None,
) -> Any:
    """Make a tensor without setting its elements; arguments as `array` has them."""
    del mem_scope
    device = device or ctx
    sizes = (shape,) if isinstance(shape, int) else tuple(int(size) for size in shape)
    return tvm.runtime.empty(sizes, dtype, cpu(0) if device is None else device)


def numpyasarray(np_data: Any) -> Any:
    """Make a tensor on the CPU of a numpy array."""
    return array(np_data)


__getattr__ = forward("tvm.runtime")
