"""What functions that users register as `FInferCorrectLayout` return."""

from convoy.relay.transform.layouts.rules import InferCorrectLayoutOutput

__all__ = ["InferCorrectLayoutOutput"]
