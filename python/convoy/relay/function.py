"""`tvm.relay.function`: functions under their former path."""

from convoy.relay.ast import Function
from convoy.relay.with_fields import FunctionWithFields

__all__ = ["Function", "FunctionWithFields"]
