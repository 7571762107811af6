"""Locations of convoy's own files, in a source checkout, an editable install and a wheel."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from pathlib import Path

import platformdirs

from .errors import CacheUnwritable, InvalidOption, LibraryMissing

RUNTIME_LIBRARY = "libconvoy_runtime.so"


@functools.cache
def source_root() -> Path | None:
    """Return the root of the checkout that this module was imported from; None in a wheel."""
    root = Path(__file__).resolve().parents[2]
    is_checkout = (root / "pyproject.toml").is_file() and (root / "codegen" / "include").is_dir()
    return root if is_checkout else None


def install_command(extra: str = "") -> str:
    """Return the command that installs convoy again, or with an extra such as ``cudnn``.

    It names the checkout where convoy was imported from one, so that it works in any folder.
    """
    brackets = f"[{extra}]" if extra else ""
    if (root := source_root()) is not None:
        return f'pip install -e "{root}{brackets}"'
    return f'pip install "tvm-convoy{brackets}"' + ("" if extra else " --force-reinstall")


def _shared(relative: str) -> Path:
    """Return a folder of the checkout, or of ``convoy/share`` in the installed package."""
    base = source_root() or Path(__file__).resolve().parent / "share"
    return base / relative


def codegen_dir() -> Path:
    """Return the folder of the C++ and CUDA sources, kernel headers among them."""
    return _shared("codegen")


def include_dir() -> Path:
    """Return the include folder of the C ABI: ``#include <convoy/kernel_abi.h>``."""
    return codegen_dir() / "include"


def records_dir() -> Path:
    """Return the folder of the shipped records: ``CONVOY_RECORDS_DIR``, or the package's own."""
    if override := os.environ.get("CONVOY_RECORDS_DIR"):
        return Path(override).expanduser()
    return _shared("tuning/records")


def workloads_dir() -> Path:
    """Return the folder of the workload lists shipped with convoy."""
    return _shared("tuning/workloads")


def runtime_library() -> Path:
    """Return the path of the C++ runtime library.

    Searched in this order: ``CONVOY_RUNTIME_LIBRARY``, the installed package (a wheel, or where an
    editable install puts its compiled files), the CMake folder ``build`` of a checkout.

    Raises:
        LibraryMissing: None of them has it; the message lists the places.
    """
    if override := os.environ.get("CONVOY_RUNTIME_LIBRARY"):
        candidates = [Path(override)]
    else:
        # Where an editable install puts compiled files is a second folder of the package.
        folders = sys.modules[__package__].__path__
        candidates = [Path(folder) / "lib" / RUNTIME_LIBRARY for folder in folders]
        if (root := source_root()) is not None:
            candidates += [root / "build" / RUNTIME_LIBRARY, root / "build/lib" / RUNTIME_LIBRARY]
    for path in candidates:
        if path.is_file():
            return path.resolve()
    raise LibraryMissing(
        f"no {RUNTIME_LIBRARY} (searched {', '.join(map(str, candidates))})",
        "the compiled runtime library",
        f"Run `{install_command()}` (a checkout needs a C++17 compiler), "
        "or set CONVOY_RUNTIME_LIBRARY",
    )


def cache_dir() -> Path:
    """Return the folder of compiled kernels: ``CONVOY_CACHE_DIR``, or the platform's cache folder.

    Deleting it only costs time. Writers create it and report a failure as CacheUnwritable.
    """
    if override := os.environ.get("CONVOY_CACHE_DIR"):
        return Path(override).expanduser()
    return Path(platformdirs.user_cache_dir("convoy", appauthor=False))


def data_dir() -> Path:
    """Return the folder of lasting data: ``CONVOY_DATA_DIR``, or the platform's data folder."""
    if override := os.environ.get("CONVOY_DATA_DIR"):
        return Path(override).expanduser()
    return Path(platformdirs.user_data_dir("convoy", appauthor=False))


def user_records_file() -> Path:
    """Return the default file of new measurements: ``records.jsonl`` in the data folder."""
    return data_dir() / "records.jsonl"


def check_file(path: Path, what: str) -> None:
    """Check that a file exists. Raises InvalidOption, which calls it ``what``."""
    if not path.is_file():
        lack = "is no file" if path.exists() else "does not exist"
        raise InvalidOption(f"{what} {path}, which {lack}", "an existing file")


def check_writable(path: Path, make_folders: bool = False) -> None:
    """Check that a file can be made or replaced, without touching it.

    Args:
        make_folders: Whether its folder will be made where it does not exist.

    Raises:
        CacheUnwritable: The path is a folder, or its folder does not exist or is not writable.
    """
    folder = path.absolute().parent
    while make_folders and not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if path.is_dir():
        problem = "it is a folder"
    elif not folder.exists():
        problem = f"there is no folder {folder}"
    elif not folder.is_dir():
        problem = f"{folder} is no folder"
    elif not os.access(folder, os.W_OK | os.X_OK):
        problem = f"no write access to {folder}"
    else:
        return
    raise CacheUnwritable(
        f"{path}, which cannot be written ({problem})", "a path in a writable folder"
    )


def nvidia_wheels() -> list[Path]:
    """Folders that the ``nvidia-*`` wheels install into."""
    spec = importlib.util.find_spec("nvidia")
    return [Path(p) for p in spec.submodule_search_locations or ()] if spec else []
