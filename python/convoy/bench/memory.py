"""Memory in use, to measure its growth."""

from __future__ import annotations

import os
from pathlib import Path

from ..runtime.library import call_json


def used_bytes(target: str) -> int:
    """Bytes in use: of the GPU by all processes, or resident ones of this process."""
    if target == "cuda":
        info = call_json("cuda.memory_info", 0)
        return int(info["total"]) - int(info["free"])
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
