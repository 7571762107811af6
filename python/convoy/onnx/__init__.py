"""ONNX models: reading, and conversion to the language of a builder.

A model is walked once, node by node, with the shapes of its inputs given: what depends on constants
and shapes alone is computed on the way, control flow is resolved, and every other node is emitted
by the converter of its operator (``ops/``) through a :class:`~convoy.onnx.builder.Builder`, of
which there are two: ``convoy.frontend.onnx`` (Relax) and ``convoy.relay.frontend.onnx`` (Relay).
"""
