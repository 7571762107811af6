"""What tests of single kernels share: their libraries, a convolution by PyTorch, and a file of
their errors."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from convoy.backends.kernels.compile import compile_many
from convoy.backends.kernels.kernel import Kernel
from convoy.errors import LibraryMissing
from convoy.ir.workload import Workload

L = TypeVar("L")


def convolved(w: Workload, x: Any, filters: Any) -> Any:
    """The convolution of a workload without its epilogue, in the type of its operands.

    Args:
        w: Strides, padding, dilation and groups.
        x: (N, H, W, C)
        filters: (K, R, S, C / groups)

    Returns:
        (N, P, Q, K), which can be differentiated.
    """
    from torch.nn.functional import conv2d, pad

    top, left, bottom, right = w.padding
    padded = pad(x.permute(0, 3, 1, 2), (left, right, top, bottom))
    planes = filters.permute(0, 3, 1, 2)
    return conv2d(padded, planes, None, w.stride, 0, w.dilation, w.groups).permute(0, 2, 3, 1)


def loaded(kernels: Iterable[Kernel], kind: Callable[[Path], L], folder: Path) -> dict[Kernel, L]:
    """The compiled libraries of kernels; skips the test where there is no CUDA compiler."""
    try:
        compiled = compile_many(kernels)
    except LibraryMissing as missing:
        pytest.skip(f"no CUDA compiler: {missing.got}")
    found = {}
    for kernel, entry in compiled.items():
        path = folder / f"{kernel.name}.so"
        path.write_bytes(entry.library)
        found[kernel] = kind(path)
    return found


def report(w: Workload, candidate: str, error: float, limit: float) -> None:
    """Append a line to the file that CONVOY_GPU_REPORT names, for ``scripts/accuracy_table.py``.

    ``error`` is infinite where the candidate failed; JSON has no such number.
    """
    if path := os.environ.get("CONVOY_GPU_REPORT"):
        line = {
            "op": w.op, "precision": "tf32" if w.math == "tf32" else w.dtype,
            "workload": w.key, "candidate": candidate,
            "error": error if math.isfinite(error) else None, "limit": limit,
        }  # fmt: skip
        with Path(path).open("a") as file:
            file.write(json.dumps(line) + "\n")
