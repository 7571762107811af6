"""`tvm._ffi.base`."""

from __future__ import annotations

from convoy.relay.tvm018.error import TVMError

__all__ = ["TVMError", "c_str", "py_str"]


def py_str(value: bytes) -> str:
    """Decode bytes as UTF-8."""
    return value.decode("utf-8")


def c_str(string: str) -> bytes:
    """Encode a string as UTF-8."""
    return string.encode("utf-8")
