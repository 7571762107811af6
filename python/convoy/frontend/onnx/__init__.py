"""ONNX models as Relax modules.

A model is walked once, node by node, with the shapes of its inputs given: what depends on constants
and shapes alone is computed on the way, control flow is resolved, and every other node is emitted
by the converter of its operator (``ops/``). So all shapes are known when a converter looks at them.
"""

from .importer import from_onnx

__all__ = ["from_onnx"]
