"""The output of ``convoy --version``: convoy and the libraries that it would load.

Wheels are asked by their metadata and the driver through ctypes: neither TVM nor cuDNN is loaded.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform

from .. import __version__
from ..measure import gpu

# Name shown -> distributions, of which the first installed one counts, and the environment
# variable that replaces it by a library elsewhere.
_LIBRARIES = (
    ("tvm", ("apache-tvm",), ""),
    ("tvm-ffi", ("apache-tvm-ffi",), ""),
    ("CUDA runtime", ("nvidia-cuda-runtime",), "CONVOY_CUDART"),
    ("cuDNN", ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"), "CONVOY_CUDNN"),
    ("CUTLASS", ("nvidia-cutlass",), ""),
)


def versions() -> list[tuple[str, str]]:
    """Return name and version of all that is loaded, in the order in which they are shown."""
    found = [("convoy", __version__), ("python", platform.python_version())]
    for name, distributions, variable in _LIBRARIES:
        elsewhere = os.environ.get(variable, "") if variable else ""
        found.append((name, elsewhere or _installed(distributions) or "not installed"))
    return [*found, ("NVIDIA driver", _driver())]


def _installed(distributions: tuple[str, ...]) -> str:
    for distribution in distributions:
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def _driver() -> str:
    version, newest = gpu.driver_version(), gpu.cuda_driver_version()
    if not version and not newest:
        return "not found"
    return f"{version or 'version unknown'} (CUDA {newest or 'unknown'})"
