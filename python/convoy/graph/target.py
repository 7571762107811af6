"""The TVM target that is current."""

from __future__ import annotations

import tvm


def on_gpu() -> bool:
    """Return whether the current target is CUDA."""
    target = tvm.target.Target.current(allow_none=True)
    return target is not None and target.kind.name == "cuda"
