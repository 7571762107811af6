"""Work spread over the GPUs of a machine, each with processor cores of its own."""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Share:
    """A GPU by its name for CUDA_VISIBLE_DEVICES (empty: what there is), and cores beside it."""

    gpu: str
    cores: tuple[int, ...]

    def environment(self, **more: str) -> dict[str, str]:
        """Environment of a process that is to see this GPU alone."""
        own = {"CUDA_VISIBLE_DEVICES": self.gpu} if self.gpu else {}
        return {**os.environ, **own, **more}

    def pin(self) -> None:
        """Keep this process to the cores of the share."""
        os.sched_setaffinity(0, self.cores)


def shares() -> list[Share]:
    """One for each visible GPU; the cores of this process are dealt out evenly."""
    gpus = visible() or [""]
    cores = sorted(os.sched_getaffinity(0))
    each = max(1, len(cores) // len(gpus))
    start = [i * each % len(cores) for i in range(len(gpus))]
    return [Share(gpu, tuple(cores[a : a + each])) for gpu, a in zip(gpus, start, strict=True)]


def visible() -> list[str]:
    """Names of the visible GPUs; none without any, or without NVIDIA's tool."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name]
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    listed = subprocess.run([tool, "-L"], capture_output=True, text=True, check=False)
    return [
        str(i) for i in range(sum(line.startswith("GPU ") for line in listed.stdout.split("\n")))
    ]


def deal(items: Sequence[Any], among: int) -> list[list[Any]]:
    """Items in turns, so that what comes first is everybody's first."""
    return [list(items[i::among]) for i in range(among)]


def on_each(do: Callable[[Share, list[Any]], Any], items: Sequence[Any]) -> list[Any]:
    """Call ``do`` for every share with its items, all at once, each in a thread."""
    found = shares()
    dealt = deal(items, len(found))
    with concurrent.futures.ThreadPoolExecutor(len(found)) as pool:
        return list(pool.map(do, found, dealt))
