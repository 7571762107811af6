"""`relay.qnn.op.legalizations`: the function behind `qnn.hardswish`."""

from convoy.relay.ops.qnn_unary import hardswish as hardswish_func

__all__ = ["hardswish_func"]
