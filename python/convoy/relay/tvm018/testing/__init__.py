"""`tvm.testing`: comparisons, and what marks tests that need a device."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import tvm

from convoy.relay.tvm018.modules import forward
from convoy.relay.tvm018.testing import utils

__all__ = ["parametrize_targets", "uses_gpu", "utils"]

_GPU = ("cuda", "cudagraph", "cudnn", "cublas", "gpu", "nvcc_compile_only", "tensorcore")
_HERE = ("llvm", "package", "x86")

_forward = forward("tvm.testing")


def uses_gpu(test: Callable[..., Any]) -> Callable[..., Any]:
    """Return a test that runs on every target, as it is."""
    return test


def parametrize_targets(*targets: Any) -> Any:
    """Run a test with `target` and `dev` for each target that this machine has.

    Args:
        *targets: Names; or the test, for the CPU and, where there is one, the GPU.
    """
    import pytest  # of tests alone

    from convoy.relay.tvm018.device import device

    names = [t for t in targets if not callable(t)] or ["llvm", "cuda"]
    pairs = [(name, device(name)) for name in names if _present(name.split()[0])]
    mark = pytest.mark.parametrize(("target", "dev"), pairs)
    return mark(targets[0]) if targets and callable(targets[0]) else mark


def _present(kind: str) -> bool:
    return kind in _HERE or (kind in _GPU and tvm.cuda().exist)


def __getattr__(name: str) -> Any:
    if not name.startswith("requires_") or hasattr(import_module("tvm.testing"), name):
        return _forward(name)
    import pytest

    kind = name.removeprefix("requires_")
    mark = pytest.mark.skipif(not _present(kind), reason=f"needs {kind}")
    return lambda test=None, *others: mark(test) if callable(test) else mark
