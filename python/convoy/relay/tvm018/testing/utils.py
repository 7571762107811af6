"""`tvm.testing.utils`."""

from __future__ import annotations

from convoy.relay.tvm018.modules import forward


def install_request_hook(depth: int = 1) -> None:
    """Do nothing: TVM's own machines redirect the downloads of its tutorials by this."""


__getattr__ = forward("tvm.testing.utils")
