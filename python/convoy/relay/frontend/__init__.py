"""`relay.frontend`: models of other frameworks as Relay, under TVM 0.18's names."""

from convoy.relay.frontend.onnx import from_onnx
from convoy.relay.frontend.pytorch import from_pytorch

__all__ = ["from_onnx", "from_pytorch"]
