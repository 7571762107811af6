"""Relay's operators, one module for each family.

A family has the builder, the type rule and the lowering of an operator next to one another, and
registers them (`registry`). Importing this package registers all families. The other modules are
what families share: `arguments` for builders, `type_inputs` for type rules, `relax_call` for
converters, `expansion_call` for expansions, `window` and `layouts` for the geometry of kernels.
"""

from convoy.relay.ops import (  # noqa: F401  (the imports register the operators)
    activation,
    adaptive_pooling,
    anchors,
    annotation,
    blocks,
    boxes,
    broadcast,
    cast,
    contrib,
    convolution,
    convolution_backward,
    convolution_transpose,
    creation,
    deformable,
    dense,
    diagonal,
    dynamic,
    einsum,
    elementwise,
    fixed_point,
    image,
    indexing,
    join,
    loss,
    morphology,
    normalization,
    padding,
    pooling,
    qnn,
    qnn_joining,
    qnn_linear,
    qnn_pooling,
    qnn_simulated,
    qnn_unary,
    random,
    reduction,
    reshape,
    roi,
    selection,
    signal,
    slicing,
    sorting,
    sparse,
    transpose,
)
from convoy.relay.ops.registry import OPERATORS, Operator, builders

__all__ = ["OPERATORS", "Operator", "builders"]
