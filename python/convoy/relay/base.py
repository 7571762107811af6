"""`tvm.relay.base`: places in texts under their former path."""

from convoy.relay.source import Span

__all__ = ["Span"]
