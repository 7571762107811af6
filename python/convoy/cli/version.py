"""The output of ``convoy --version``: Convoy and the libraries that it would load.

Versions are those of the installed wheels, paths those that the runtime opens; the driver's version
is read through ctypes. Neither TVM nor cuDNN is loaded.
"""

from __future__ import annotations

import platform

from .. import __version__, paths
from ..errors import LibraryMissing
from ..measure import gpu
from ..runtime.library import locations
from ..wheels import version_of

# Name shown -> distributions, of which the first installed one counts, and what the runtime calls
# the library that it opens.
_LIBRARIES = (
    ("tvm", ("apache-tvm",), ""),
    ("tvm-ffi", ("apache-tvm-ffi",), ""),
    ("CUDA runtime", ("nvidia-cuda-runtime",), "cudart"),
    ("cuDNN", ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"), "cudnn"),
    ("CUTLASS", ("nvidia-cutlass",), ""),
)


def versions() -> list[tuple[str, str]]:
    """Return name and version of all that is loaded, in the order in which they are shown."""
    found = [("convoy", __version__), ("python", platform.python_version())]
    for name, distributions, opened in _LIBRARIES:
        found.append((name, _library(distributions, locations().get(opened, ""))))
    try:
        library = str(paths.runtime_library())
    except LibraryMissing:
        library = "not found"
    return [*found, ("runtime library", library), ("NVIDIA driver", _driver())]


def _library(distributions: tuple[str, ...], path: str) -> str:
    """The version of a wheel with the path of its library; the path alone of one from elsewhere."""
    version = version_of(*distributions)
    if path and (not version or "site-packages" not in path):
        return path
    return f"{version} ({path})" if path else version or "not installed"


def _driver() -> str:
    version, newest = gpu.driver_version(), gpu.cuda_driver_version()
    if not version and not newest:
        return "not found"
    return f"{version or 'version unknown'} (CUDA {newest or 'unknown'})"
