"""GPU, driver, and the CUDA libraries that are loaded at run time."""

from __future__ import annotations

import collections
import importlib.util
import os

from ...measure import gpu as gpus
from ...paths import install_command
from ...runtime import library
from ...wheels import nvidia_file, version_of
from .check import Check, ProbeDied, ask

OLDEST_DRIVER = 580  # the first that runs CUDA 13
ARCHITECTURES = (80, 90)

# Loading a library runs its code, so it is done in a subprocess.
_LOAD = """
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
function = getattr(library, sys.argv[2])
function.restype = ctypes.c_size_t
print(json.dumps(function()))
"""
_NVRTC = """
import ctypes, json, sys
library, major, minor = ctypes.CDLL(sys.argv[1]), ctypes.c_int(), ctypes.c_int()
assert library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) == 0
print(json.dumps(f"{major.value}.{minor.value}"))
"""
_CUDART = """
import ctypes, json, sys
library, version = ctypes.CDLL(sys.argv[1]), ctypes.c_int()
assert library.cudaRuntimeGetVersion(ctypes.byref(version)) == 0
print(json.dumps(version.value))
"""


def gpu() -> Check:
    found, why_not = gpus.find_gpus()
    if not found:
        remedy = "use a machine with an NVIDIA GPU; `convoy place` works without one"
        return Check("GPU", "missing", why_not, remedy, need="gpu")
    names = collections.Counter(
        f"{g.name} (sm_{g.arch}, {g.sm_count} SMs, {g.memory_bytes >> 30} GiB)" for g in found
    )
    counted = (f"{count} x {name}" if count > 1 else name for name, count in names.items())
    detail = "; ".join(counted)
    if not any(g.arch in ARCHITECTURES for g in found):
        supported = " and ".join(f"sm_{arch}" for arch in ARCHITECTURES)
        return Check("GPU", "problem", f"{detail}: kernels exist for {supported}", need="gpu")
    return Check("GPU", "found", detail, need="gpu")


def driver() -> Check:
    version, newest = gpus.driver_version(), gpus.cuda_driver_version()
    remedy = f"install NVIDIA driver {OLDEST_DRIVER} or newer"
    if not newest and not version:
        return Check("NVIDIA driver", "missing", "libcuda.so.1 not usable", remedy, need="gpu")
    detail = f"{version or 'version unknown'}, runs CUDA up to {newest or 'unknown'}"
    old_driver = version and int(version.split(".")[0]) < OLDEST_DRIVER
    if old_driver or (newest and int(newest.split(".")[0]) < 13):
        return Check("NVIDIA driver", "problem", f"{detail}: too old for CUDA 13", remedy, "gpu")
    return Check("NVIDIA driver", "found", detail, need="gpu")


def _locate(variable: str, in_wheels: tuple[str, ...], soname: str) -> str:
    """Path to load a library by: an environment variable, a wheel, or the linker's own search."""
    return os.environ.get(variable) or nvidia_file(*in_wheels) or soname


def cudart() -> Check:
    """TVM's CUDA runtime needs libcudart.so.13 and reports nothing when it is absent."""
    path = library.locations()["cudart"] or "libcudart.so.13"
    try:
        version = int(ask(_CUDART, path))
    except ProbeDied as err:
        remedy = 'pip install "nvidia-cuda-runtime>=13,<14"'
        return Check("CUDA runtime", "missing", f"{path}: {err}", remedy, need="gpu")
    return Check(
        "CUDA runtime", "found", f"{library.cuda_version_text(version)} at {path}", need="gpu"
    )


def cublaslt() -> Check:
    """cuDNN aborts the process when cuBLASLt is absent, so it is searched for first."""
    return _cublaslt(_cudnn_cuda_major())


def _cublaslt(major: int) -> Check:
    soname = f"libcublasLt.so.{major}"
    path = _locate("CONVOY_CUBLASLT", _CUBLASLT_WHEELS[major], soname)
    try:
        version = int(ask(_LOAD, path, "cublasLtGetVersion"))
    except ProbeDied as err:
        package = "nvidia-cublas>=13,<14" if major == 13 else "nvidia-cublas-cu12"
        return Check("cuBLASLt", "missing", str(err), f'pip install "{package}"', need="gpu")
    return Check("cuBLASLt", "found", f"{library.version_text(version)} at {path}", need="gpu")


_CUBLASLT_WHEELS = {
    13: ("cu13/lib/libcublasLt.so.13",),
    12: ("cublas/lib/libcublasLt.so.12",),
}


def _cudnn_cuda_major() -> int:
    """CUDA major version that the installed cuDNN was built for; 13 where it is unknown."""
    has = {major for major in (12, 13) if version_of(f"nvidia-cudnn-cu{major}")}
    return 12 if has == {12} else 13


def cudnn() -> Check:
    both = {major: version_of(f"nvidia-cudnn-cu{major}") for major in (12, 13)}
    remedy = install_command("cudnn")
    if all(both.values()):
        detail = (
            f"nvidia-cudnn-cu12 {both[12]} and nvidia-cudnn-cu13 {both[13]} are both installed "
            "and overwrite each other's files"
        )
        fix = f"pip uninstall -y nvidia-cudnn-cu12 nvidia-cudnn-cu13 && {remedy}"
        return Check("cuDNN", "problem", detail, fix, need="gpu")
    path = library.locations()["cudnn"] or "libcudnn.so.9"
    try:
        number = int(ask(_LOAD, path, "cudnnGetVersion"))
        built_for = int(ask(_LOAD, path, "cudnnGetCudartVersion"))
    except ProbeDied as err:
        return Check("cuDNN", "missing", f"{path}: {err}", remedy, need="gpu")
    detail = f"{library.version_text(number)} for CUDA {built_for // 1000} at {path}"
    if number < 90000:
        return Check("cuDNN", "problem", f"{detail}: version 9 is needed", remedy, need="gpu")
    lt = _cublaslt(built_for // 1000) if built_for // 1000 in _CUBLASLT_WHEELS else None
    if lt is not None and lt.status != "found":
        detail += ": unusable without cuBLASLt, cuDNN would abort the process"
        return Check("cuDNN", "problem", detail, lt.remedy, need="gpu")
    return Check("cuDNN", "found", detail, need="gpu")


def nvrtc() -> Check:
    """TVM compiles its own CUDA kernels with NVRTC through the cuda-bindings package."""
    remedy = install_command("gpu")
    path = _locate("CONVOY_NVRTC", ("cu13/lib/libnvrtc.so.13",), "libnvrtc.so.13")
    try:
        version = ask(_NVRTC, path)
    except ProbeDied as err:
        return Check("NVRTC", "missing", str(err), remedy, need="gpu")
    newest = gpus.cuda_driver_version()
    detail = f"{version} at {path}"
    if not _has_cuda_bindings():
        return Check("NVRTC", "problem", f"{detail}, but cuda-bindings is missing", remedy, "gpu")
    if newest and _numbers(version) > _numbers(newest):
        detail += f", newer than the driver (CUDA {newest}): PTX that it makes may not load"
    return Check("NVRTC", "found", detail, need="gpu")


def _has_cuda_bindings() -> bool:
    try:
        return importlib.util.find_spec("cuda.bindings") is not None
    except ModuleNotFoundError:
        return False


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
