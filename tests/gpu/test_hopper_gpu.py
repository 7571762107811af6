"""Every kernel of Convoy's own on the GPU, in processes with a watchdog (tests/sm90/lab.py).

The cases are those of ``tests/sm90/cases.py``: odd sizes, uneven padding, strides 2 and 3,
poisoned outputs with guards, many tiles for each block, replay from a graph.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from convoy.backends.kernels.cache import Entry, KernelCache
from convoy.backends.kernels.compile import compile_many
from convoy.backends.kernels.sm90.kernels import Sm90Kernel
from convoy.errors import LibraryMissing

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group("hopper")]  # one run of all jobs

LAB = Path(__file__).resolve().parents[1] / "sm90"


@pytest.fixture(scope="module")
def results() -> dict[str, list[tuple[object, object]]]:
    """(job, result) of all check jobs by kernel name, run once for the module."""
    pytest.importorskip("torch")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(LAB))
        cases, lab = map(importlib.import_module, ("cases", "lab"))
        try:
            compiled = compile_many(cases.kernels())
        except LibraryMissing as missing:
            pytest.skip(f"no CUDA compiler: {missing.got}")
        libraries = {
            k: str(KernelCache().file(e)) for k, e in compiled.items() if isinstance(e, Entry)
        }
        assert libraries.keys() == compiled.keys(), "kernels that do not compile"
        found: dict[str, list[tuple[object, object]]] = {}
        for job, result in lab.run_side_by_side(cases.check_jobs(libraries)):
            found.setdefault(job.name, []).append((job, result))
        return found


def kernels(parameters: object = (), device: object = None) -> list[Sm90Kernel]:
    """What the tests run, whichever of them are selected."""
    sys.path.insert(0, str(LAB))
    try:
        return importlib.import_module("cases").kernels()
    finally:
        sys.path.remove(str(LAB))


@pytest.mark.parametrize("name", [kernel.name for kernel in kernels()])
def test_kernel_against_float64(results, name):
    runs = results[name]
    assert len(runs) >= 4
    wrong = [f"{job.workload.key} swizzle {job.swizzle}: {r.error}" for job, r in runs if r.error]
    assert not wrong, f"{len(wrong)} of {len(runs)} wrong:\n" + "\n".join(wrong[:10])
