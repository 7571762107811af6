"""Relay to Relax: `engine` walks a module; each other file converts one family of operators."""

from convoy.relay.convert import (  # noqa: F401  (the imports register the converters)
    blocks,
    elementwise,
    image,
    indexing,
    misc,
    nn_conv,
    nn_conv_transpose,
    nn_dense,
    nn_norm,
    nn_pool,
    reduce,
    shape,
)
from convoy.relay.convert.engine import supported_ops, to_relax

__all__ = ["supported_ops", "to_relax"]
