"""All probes of ``convoy doctor``, and the summary of their checks.

Probes are independent: one that fails, crashes or hangs is reported, and the others continue.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterable, Sequence

from ...report.tables import Column
from . import cuda, software, toolchain
from .check import Check

Probe = Callable[[], Check]

# In the order in which they are shown.
PROBES: tuple[Probe, ...] = (
    software.python,
    software.tvm,
    software.runtime_library,
    toolchain.cxx,
    software.records,
    software.cache,
    toolchain.shipped_kernels,
    cuda.gpu,
    cuda.driver,
    cuda.cudart,
    software.tvm_cuda,
    cuda.cudnn,
    cuda.cublaslt,
    cuda.nvrtc,
    toolchain.nvcc,
    toolchain.cutlass,
)

COLUMNS = (
    Column("what", "name"),
    Column("status", "status"),
    Column("for", "need"),
    Column("detail", "detail"),
)


def examine(probes: Sequence[Probe] = PROBES) -> list[Check]:
    """Run all probes, two at a time, and return their checks in order. Never raises."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        return list(pool.map(_guarded, probes))


def _guarded(probe: Probe) -> Check:
    try:
        return probe()
    except Exception as err:  # a probe must not take the others with it
        name = getattr(probe, "__name__", "probe").replace("_", " ")
        return Check(name, "problem", f"the probe failed: {type(err).__name__}: {err}")


def ready(checks: Iterable[Check], gpu: bool = False) -> bool:
    """Return whether the CPU path works or, with ``gpu``, all that a GPU needs is there as well."""
    needed = ("cpu", "gpu") if gpu else ("cpu",)
    return all(check.status == "found" for check in checks if check.need in needed)
