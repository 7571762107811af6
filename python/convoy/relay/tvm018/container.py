"""`tvm.container`: lists and dicts."""

from convoy.relay.tvm018.runtime.container import ADT, Array, Map, String

__all__ = ["ADT", "Array", "Map", "String"]
