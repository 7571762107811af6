"""What tests of single kernels share: a convolution by PyTorch, and a file of their errors."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from convoy.ir.workload import Workload


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
