"""Gradients of Relay functions, as Relay functions.

`transform` makes a function straight-line (`evaluate.symbolic`) and walks back over it (`reverse`)
with the rules of the operators, which the other modules register by family (`registry`).
"""

from convoy.relay.gradient import (  # noqa: F401  (the imports register the rules)
    elementwise,
    normalization,
    pooling,
    products,
    reductions,
    shapes,
)
from convoy.relay.gradient.transform import first_order_gradients, gradient

__all__ = ["first_order_gradients", "gradient"]
