"""`relay.frontend`: models of other frameworks as Relay, under TVM 0.18's names."""

from convoy.relay.frontend.onnx import from_onnx

__all__ = ["from_onnx"]
