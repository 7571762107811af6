"""Quantized operators, under the names of TVM 0.18's `relay.qnn`."""

from convoy.relay.qnn import op

__all__ = ["op"]
