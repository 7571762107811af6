"""`relay.backend`: the executors and runtimes that scripts pass to `relay.build`."""

from __future__ import annotations

from typing import Any

from convoy.relay.backend.kinds import Executor, Runtime
from convoy.relay.removed import Removed

__all__ = ["Executor", "Runtime"]


def __getattr__(name: str) -> Any:
    """Return a stand-in, which says so when it is used, for a part of TVM's own compiler."""
    if name in ("te_compiler", "compile_engine", "graph_executor_codegen", "contrib", "_backend"):
        return Removed(f"relay.backend.{name}")
    raise AttributeError(f"relay.backend has no {name}")
