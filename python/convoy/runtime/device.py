"""The GPU of this process."""

from __future__ import annotations

import dataclasses
import functools

from ..errors import LibraryMissing, NoGpu, WrongDevice
from ..ir.device import Device
from .library import call_json

# Fraction of the peak bandwidth that a large copy reaches; 4.3 of 4.92 TB/s on an H200.
_COPY_EFFICIENCY = 0.875


@functools.cache
def _describe(index: int) -> Device:
    info = call_json("cuda.device_info", index)
    device = Device(
        name=info["name"],
        arch=info["arch"],
        sm_count=info["sm_count"],
        shared_memory_per_block=info["shared_memory_per_block"],
        l2_bytes=info["l2_bytes"],
        memory_bytes=info["memory_bytes"],
    )
    if not info["peak_bandwidth"]:
        return device
    bandwidth = float(f"{_COPY_EFFICIENCY * info['peak_bandwidth']:.1e}")
    return dataclasses.replace(device, memory_bandwidth=bandwidth)


def current_device(index: int = 0) -> Device:
    """Return the GPU of that index as plain data. Raises NoGpu where CUDA or the GPU is missing."""
    try:
        return _describe(index)
    except LibraryMissing as err:
        raise NoGpu(str(err)) from None


def present_device(index: int = 0) -> Device | None:
    """Like :func:`current_device`; None without a GPU."""
    try:
        return current_device(index)
    except NoGpu:
        return None


def check_device(arch: int | None, index: int = 0) -> None:
    """Raise WrongDevice unless the GPU has this compute capability (times ten); None: any GPU.

    Raises NoGpu without a GPU.
    """
    device = current_device(index)
    if arch is not None and device.arch != arch:
        raise WrongDevice(
            f"{device.name} of compute capability {device.arch / 10}",
            f"{arch / 10}, which the module was built for",
            "Build the module for this GPU.",
        )
