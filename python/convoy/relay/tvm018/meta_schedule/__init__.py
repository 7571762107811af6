"""`tvm.meta_schedule`: `tvm.s_tir.meta_schedule`, and for Relay Convoy's tuner."""

from __future__ import annotations

from typing import Any

from convoy.relay.removed import removed_names
from convoy.relay.tvm018.meta_schedule import database, relay_integration
from convoy.relay.tvm018.modules import forward

__all__ = ["database", "relay_integration"]

_present, _removed = forward("tvm.s_tir.meta_schedule"), removed_names("meta_schedule")


def __getattr__(name: str) -> Any:
    try:
        return _present(name)
    except AttributeError:
        return _removed(name)
