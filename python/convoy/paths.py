"""Where convoy's own files lie: in a source checkout or editable install, and in a wheel."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import platformdirs

from .errors import LibraryMissing

RUNTIME_LIBRARY = "libconvoy_runtime.so"


@functools.cache
def source_root() -> Path | None:
    """Root of the source checkout that this module was imported from; None in a wheel."""
    root = Path(__file__).resolve().parents[2]
    is_checkout = (root / "pyproject.toml").is_file() and (root / "codegen" / "include").is_dir()
    return root if is_checkout else None


def _shared(relative: str) -> Path:
    """A folder of the checkout, or of ``convoy/share`` in the installed package."""
    base = source_root() or Path(__file__).resolve().parent / "share"
    return base / relative


def codegen_dir() -> Path:
    """Folder that holds the kernel headers' folders ``include``, ``cutlass`` and ``sm90``."""
    return _shared("codegen")


def include_dir() -> Path:
    """Include folder of the C ABI: ``#include <convoy/kernel_abi.h>``."""
    return codegen_dir() / "include"


def records_dir() -> Path:
    """Folder of the records shipped with convoy; read-only in an installed wheel."""
    return _shared("tuning/records")


def workloads_dir() -> Path:
    """Folder of the workload lists shipped with convoy."""
    return _shared("tuning/workloads")


def runtime_library() -> Path:
    """The C++ runtime library.

    Looked for in this order: ``CONVOY_RUNTIME_LIBRARY``, the installed package (a wheel, or
    where an editable install puts its compiled files), the CMake folder ``build`` of a checkout.

    Raises LibraryMissing with the places looked at.
    """
    import convoy

    if override := os.environ.get("CONVOY_RUNTIME_LIBRARY"):
        candidates = [Path(override)]
    else:
        candidates = [Path(folder) / "lib" / RUNTIME_LIBRARY for folder in convoy.__path__]
        if (root := source_root()) is not None:
            candidates += [root / "build" / RUNTIME_LIBRARY, root / "build/lib" / RUNTIME_LIBRARY]
    for path in candidates:
        if path.is_file():
            return path.resolve()
    raise LibraryMissing(
        f"no {RUNTIME_LIBRARY} (looked at {', '.join(map(str, candidates))})",
        "the compiled runtime library",
        "Run `pip install -e .` (needs a C++17 compiler), or set CONVOY_RUNTIME_LIBRARY",
    )


def cache_dir() -> Path:
    """Folder of compiled kernels: ``CONVOY_CACHE_DIR``, or the platform's cache folder.

    Losing it costs time only. Not created here: whoever writes creates it and turns a failure
    into CacheUnwritable.
    """
    if override := os.environ.get("CONVOY_CACHE_DIR"):
        return Path(override).expanduser()
    return Path(platformdirs.user_cache_dir("convoy", appauthor=False))


def data_dir() -> Path:
    """Folder of what should last: ``CONVOY_DATA_DIR``, or the platform's data folder."""
    if override := os.environ.get("CONVOY_DATA_DIR"):
        return Path(override).expanduser()
    return Path(platformdirs.user_data_dir("convoy", appauthor=False))


def user_records_file() -> Path:
    """Where new measurements go unless told otherwise: ``records.jsonl`` in the data folder."""
    return data_dir() / "records.jsonl"
