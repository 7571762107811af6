"""Find and load libconvoy_runtime.so and the CUDA libraries that it opens.

Nothing heavy is imported here: a deployed module needs tvm_ffi, this and TVM's runtime only.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import errors, paths
from ..errors import ConvoyError, LibraryMissing
from ..wheels import nvidia_file

if TYPE_CHECKING:
    import tvm_ffi

# Error kinds of the C++ side that arrive in Python as the class of the same name.
_ERROR_KINDS = (
    "CaptureNotReady",
    "CorruptArtefact",
    "InvalidOption",
    "InvalidWorkload",
    "LibraryMissing",
    "LibraryVersionMismatch",
    "NoGpu",
    "WrongDevice",
)
_lock = threading.Lock()
_library: ctypes.CDLL | None = None


def _cudart() -> str:
    return os.environ.get("CONVOY_CUDART") or nvidia_file("cu13/lib/libcudart.so.13")


@functools.cache
def locations() -> dict[str, str]:
    """Paths of CUDA's runtime, cuDNN and cuBLASLt; empty if the system's linker shall search.

    An environment variable (CONVOY_CUDART, CONVOY_CUDNN, CONVOY_CUBLASLT) goes before a wheel.
    """
    cudnn = os.environ.get("CONVOY_CUDNN") or nvidia_file("cudnn/lib/libcudnn.so.9")
    return {
        "cudart": _cudart(),
        "cudnn": cudnn,
        # The C++ side finds the matching version in cuDNN's folder.
        "cublaslt": os.environ.get("CONVOY_CUBLASLT", ""),
    }


def preload_cudart() -> str:
    """Make libcudart.so.13 known to the process, for TVM's CUDA runtime, which otherwise fails to
    load without a word; must come before the first ``import tvm``.

    Returns the path, empty when there is none: without CUDA everything but running works.
    """
    path = _cudart() or "libcudart.so.13"
    try:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return ""
    return path


def load_tvm_backends() -> str:
    """Load what an executable for a GPU needs of TVM beside its runtime library, where TVM left it
    out: with TVM_USE_RUNTIME_LIB=1, and in installations without the compiler.

    Returns why its CUDA runtime cannot be loaded, empty if it is; without CUDA all else works.
    """
    from tvm import base
    from tvm_ffi.libinfo import load_lib_ctypes

    folder = Path(base._LOADED_LIBS["tvm_runtime"]._name).resolve().parent
    problem = ""
    for name in ("tvm_runtime_extra", "tvm_runtime_cuda"):
        if name in base._LOADED_LIBS:
            continue
        try:
            base._LOADED_LIBS[name] = load_lib_ctypes(
                "tvm", name, "RTLD_LOCAL", extra_lib_paths=[folder]
            )
        except (OSError, RuntimeError) as err:
            problem = str(err)
    return problem


def version_text(number: int) -> str:
    """The version of cuDNN 9 or cuBLASLt from its number: ``9.19.1`` for 91901."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def cuda_version_text(number: int) -> str:
    """The version of CUDA from its number: ``13.0`` for 13000."""
    return f"{number // 1000}.{number % 1000 // 10}"


def load_runtime() -> None:
    """Load the runtime library once; its functions are global functions ``convoy.*`` from then on.

    Raises LibraryMissing when it was not built or does not fit the installed tvm_ffi.
    """
    global _library
    with _lock:
        if _library is not None:
            return
        path = paths.runtime_library()
        preload_cudart()
        try:
            import tvm_ffi
        except ImportError as err:
            raise LibraryMissing(
                f"no tvm_ffi ({err})", "apache-tvm-ffi", "pip install apache-tvm-ffi"
            ) from None
        for kind in _ERROR_KINDS:
            tvm_ffi.register_error(kind, getattr(errors, kind))
        try:
            library = ctypes.CDLL(str(path))
        except OSError as err:
            raise LibraryMissing(
                f"{path}, which cannot be loaded ({err})",
                f"a runtime library built for tvm_ffi {tvm_ffi.__version__}",
                f"Build it again: {paths.install_command()}",
            ) from None
        tvm_ffi.get_global_func("convoy.library.configure")(json.dumps(locations()))
        _library = library


def function(name: str) -> tvm_ffi.Function:
    """Return the runtime's function ``convoy.<name>``, the library loaded where it is not yet."""
    load_runtime()
    return _function(name)


@functools.cache
def _function(name: str) -> tvm_ffi.Function:
    import tvm_ffi

    return tvm_ffi.get_global_func(f"convoy.{name}")


def call_json(name: str, *arguments: object) -> Any:
    """Call a function that speaks JSON: dictionaries and lists go in and come out as Python's."""
    packed = [json.dumps(a) if isinstance(a, dict | list) else a for a in arguments]
    return json.loads(function(name)(*packed))


def _loaded_path() -> Path:
    load_runtime()
    return paths.runtime_library()


def status() -> dict[str, str]:
    """Return the libraries that the runtime can open, for ``convoy doctor``: a path or version, or
    the error.

    Keys: runtime, cuda, gpu, cudnn. Never raises. cuDNN is opened only after cuBLASLt was found,
    because it ends the process otherwise.
    """
    result = {}
    probes: dict[str, Callable[[], object]] = {
        "runtime": _loaded_path,
        "cuda": lambda: function("cuda.path")(),
        "gpu": lambda: call_json("cuda.device_info", 0)["name"],
        "cudnn": lambda: f"{function('cudnn.version')()} at {function('cudnn.path')()}",
    }
    for name, probe in probes.items():
        try:
            result[name] = str(probe())
        except (ConvoyError, RuntimeError) as err:
            result[name] = f"not usable: {err}"
    return result
