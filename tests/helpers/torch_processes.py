"""Processes that tests start do without PyTorch, which tvm_ffi imports, unless they need it."""

from __future__ import annotations

import os
from pathlib import Path

#: Before the path of modules of processes that do without.
WITHOUT_TORCH = Path(__file__).resolve().parent / "without_torch"


def path_with_torch() -> str:
    """``PYTHONPATH`` of a process that needs PyTorch."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(path for path in paths if path != str(WITHOUT_TORCH))
