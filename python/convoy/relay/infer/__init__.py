"""Type inference with the rules of TVM 0.18.

`engine` walks a module; each other file has the rules of one family of operators, registered by
`@rule("nn.conv2d")`.
"""

from convoy.relay.infer import (  # noqa: F401  (the imports register the rules)
    blocks,
    dynamic,
    elementwise,
    image,
    indexing,
    misc,
    nn_conv,
    nn_dense,
    nn_norm,
    nn_pool,
    qnn,
    reduce,
    shape,
)
from convoy.relay.infer.engine import infer_expr, infer_module

__all__ = ["infer_expr", "infer_module"]
