"""Quantized operators, under the names of TVM 0.18's `relay.qnn` and `relay.qnn.op`."""

from convoy.relay.qnn import op, transform
from convoy.relay.qnn.op import *  # noqa: F403

__all__ = ["op", "transform", *op.__all__]
