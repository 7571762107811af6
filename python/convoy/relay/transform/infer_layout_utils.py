"""Results of the functions that users register as `FInferCorrectLayout`."""

from convoy.relay.transform.layouts.rules import InferCorrectLayoutOutput

__all__ = ["InferCorrectLayoutOutput"]
