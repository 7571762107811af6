"""`tvm.relay.function`: functions under their former path."""

from convoy.relay.ast import Function

__all__ = ["Function"]
