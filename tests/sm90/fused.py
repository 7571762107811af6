"""What tests of fused sm90 kernels share: what the compiler says of a library and what it exports,
and Python's rules against the library's own check."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.kernel_abi.library import Library

from convoy.backends.kernels import shipped
from convoy.backends.kernels.compile import compile_to
from convoy.backends.kernels.kernel import Kernel
from convoy.backends.kernels.sm90 import family
from convoy.backends.kernels.sm90.family import sm90_backend
from convoy.backends.kernels.sm90.kernels import Sm90Kernel, kernel_from_json
from convoy.backends.kernels.sm90.space import Launch
from convoy.backends.kernels.toolkit import Toolkit
from convoy.errors import InvalidOption
from convoy.ir.activation import WITH_ALPHA
from convoy.ir.candidate import Decline
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload

DEVICE = Device()
#: Bytes of registers that ptxas may spill in a kernel.
MOST_SPILLED = 16


def why_not(kernel: Sm90Kernel, swizzle: int, w: Workload) -> str:
    """The reason why a launch cannot run a workload; empty if it can."""
    return family.why_not(Launch(kernel, swizzle=swizzle), w, DEVICE)


def compiled_with_words(kernel: Kernel, toolkit: Toolkit, folder: Path) -> tuple[str, Path]:
    """What the compiler says, and the library."""
    path = folder / "kernel.so"
    return compile_to(kernel, path, toolkit, ["-Xptxas=-v"]), path


def check_spills(words: str, kernels: int = 1) -> None:
    """The compiler speaks of this many kernels at least, none of which spills much."""
    spills = [int(count) for count in re.findall(r"(\d+) bytes spill", words)]
    assert len(spills) >= kernels and max(spills) <= MOST_SPILLED, words


def check_wgmma(words: str) -> None:
    """ptxas may put a warpgroup.arrive in front, but not wait between one wgmma and the next."""
    assert set(re.findall(r"C75\d\d", words)) <= {"C7519"}, words
    assert "serializ" not in words, words


def check_exports(library: Path, kind: str) -> None:
    """The library has the functions of its ABI and no others."""
    names = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
    ).stdout
    assert set(re.findall(r" T convoy_kernel_(\w+)", names)) == {
        *(f"{kind}_abi", f"{kind}_check", f"{kind}_prepare", "state_bytes", "launch"),
        *("launch_programmatic", "footprint", "error"),
    }


def check_there_and_back(kernel: Any, name: str) -> None:
    """A kernel is the same when read from JSON; its name and source are those of its dtype."""
    assert kernel_from_json(kernel.to_json()) == kernel
    assert kernel.name == f"{name}_{'bf16' if kernel.dtype == 'bfloat16' else 'f16'}"
    assert kernel.name in kernel.source and f'"{name}_library.cuh"' in kernel.source
    assert ("__nv_bfloat16" in kernel.source) == (kernel.dtype == "bfloat16")


def check_shipped(kernels: Iterable[Kernel]) -> None:
    assert not [kernel.name for kernel in kernels if not shipped.has(kernel)]


def check_dtypes(kernel: Callable[[str], Kernel]) -> None:
    """There is no kernel of other dtypes."""
    for dtype in ("float32", "int8"):
        with pytest.raises(InvalidOption):
            kernel(dtype)


def activated(activation: str, residual: bool = False) -> Epilogue:
    """An epilogue of a bias and this activation."""
    alpha = 0.1 if activation in WITH_ALPHA else 0.0
    high = 6.0 if activation == "clip" else 0.0
    return Epilogue(residual, True, activation, clip_max=high, alpha=alpha)


def proposed(w: Workload, *limit: int) -> list[int] | None:
    """The swizzles that the backend proposes, at most ``limit``; None where it declines."""
    found = sm90_backend(*limit).propose(w, DEVICE)
    if isinstance(found, Decline):
        return None
    return [sm90_backend().launch_of(candidate).swizzle for candidate in found]


def offered(w: Workload, choices: int) -> set[int]:
    """The places that the backend proposes, each of which has this many swizzles: one for all
    activations together."""
    swizzles = proposed(w)
    if swizzles is None:
        return set()
    assert len({swizzle % choices for swizzle in swizzles}) == 1
    return {swizzle // choices for swizzle in swizzles}


def taken(
    library: Library, problem: Callable[..., Any], w: Workload, places: int, choices: int
) -> set[int]:
    """The places that the library runs, of those that there are and of some that are not."""
    found = range(-1, places + 2)
    return {i for i in found if not library.check(problem(w, 132, i * choices))}


def check_candidates(
    w: Workload, kernel: Kernel, swizzles: Sequence[int], fewest: int, most: int
) -> None:
    """The backend proposes launches of a kernel with these swizzles, all programmatic."""
    backend = sm90_backend()
    found = backend.propose(w, DEVICE)
    assert isinstance(found, list) and fewest <= len(found) <= most
    for candidate in found:
        assert backend.launch_of(candidate).kernel == kernel
        assert backend.is_programmatic(candidate, DEVICE)
    assert [backend.launch_of(candidate).swizzle for candidate in found] == swizzles
