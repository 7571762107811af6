"""Passes of TVM 0.18 that rewrite dense layers by the values of their weights."""

from __future__ import annotations

from typing import Any

from convoy.relay.removed import Removed


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return Removed(f"relay.data_dep_optimization.{name}")
