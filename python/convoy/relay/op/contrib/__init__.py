"""Partitioning for one library, as TVM 0.18 offers it.

A network that is built without it uses whatever kernel is fastest for each operator.
"""

from __future__ import annotations

from typing import Any

from convoy.relay.op.contrib import cudnn, cutlass
from convoy.relay.op.contrib.register import get_pattern_table, register_pattern_table
from convoy.relay.removed import REMOVED, Removed

__all__ = ["cudnn", "cutlass", "get_pattern_table", "register_pattern_table"]


def __getattr__(name: str) -> Any:
    if f"relay.op.contrib.{name}" in REMOVED:
        return Removed(f"relay.op.contrib.{name}")
    raise AttributeError(f"relay.op.contrib has no {name}")
