"""The GPUs that the NVIDIA driver reports, through ctypes: no CUDA toolkit, no TVM needed."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

from ..ir.device import Device
from ..runtime.library import cuda_version_text

# CUdevice_attribute numbers of cuda.h
_SM_COUNT, _MAJOR, _MINOR, _L2_BYTES, _SHARED_OPTIN = 16, 75, 76, 38, 97
_THREADS_PER_SM, _REGISTERS_PER_SM, _BLOCKS_PER_SM = 39, 82, 106
_KERNEL_MODULE = Path("/proc/driver/nvidia/version")


def _cuda() -> tuple[ctypes.CDLL | None, str]:
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as err:
        return None, f"libcuda.so.1 cannot be loaded ({err})"
    if (code := cuda.cuInit(0)) != 0:
        return None, f"cuInit returned error {code}"
    return cuda, ""


def find_gpus() -> tuple[list[Device], str]:
    """The GPUs that the CUDA driver shows, by ordinal, and why there are none when the list is
    empty. Their memory bandwidth is not known here."""
    cuda, problem = _cuda()
    if cuda is None:
        return [], problem
    count = ctypes.c_int()
    if (code := cuda.cuDeviceGetCount(ctypes.byref(count))) != 0:
        return [], f"cuDeviceGetCount returned error {code}"
    gpus: list[Device] = []
    for ordinal in range(count.value):
        device = ctypes.c_int()
        if (code := cuda.cuDeviceGet(ctypes.byref(device), ordinal)) != 0:
            return gpus, f"cuDeviceGet({ordinal}) returned error {code}"
        gpus.append(_describe(cuda, device))
    return gpus, "" if gpus else "the CUDA driver shows no GPU"


def _describe(cuda: ctypes.CDLL, device: ctypes.c_int) -> Device:
    def attribute(number: int) -> int:
        value = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device)
        return value.value

    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGetName(name, len(name), device)
    memory = ctypes.c_size_t()
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    return Device(
        name=name.value.decode(errors="replace"),
        arch=10 * attribute(_MAJOR) + attribute(_MINOR),
        sm_count=attribute(_SM_COUNT),
        memory_bytes=memory.value,
        l2_bytes=attribute(_L2_BYTES),
        shared_memory_per_block=attribute(_SHARED_OPTIN),
        threads_per_sm=attribute(_THREADS_PER_SM),
        blocks_per_sm=attribute(_BLOCKS_PER_SM),
        registers_per_sm=attribute(_REGISTERS_PER_SM),
    )


def cuda_driver_version() -> str:
    """Newest CUDA version that the driver runs, such as ``13.0``; empty without a driver."""
    cuda, _ = _cuda()
    version = ctypes.c_int()
    if cuda is None or cuda.cuDriverGetVersion(ctypes.byref(version)) != 0:
        return ""
    return cuda_version_text(version.value)


def driver_version() -> str:
    """Version of the NVIDIA driver, such as ``580.95.05``; empty when it cannot be told."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        text = ctypes.create_string_buffer(96)
        if nvml.nvmlInit_v2() == 0:
            found = nvml.nvmlSystemGetDriverVersion(text, len(text)) == 0
            nvml.nvmlShutdown()
            if found:
                return text.value.decode(errors="replace")
    except (OSError, AttributeError):
        pass  # containers may lack NVML; the kernel module still tells
    try:
        match = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", _KERNEL_MODULE.read_text())
    except OSError:
        return ""
    return match.group(1) if match else ""
