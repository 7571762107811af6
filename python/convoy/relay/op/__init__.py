"""Helpers that build calls: `relay.add`, `relay.nn.conv2d`, `relay.image.resize2d`, ...

Signatures and defaults are those of TVM 0.18's Python helpers, which differ from the defaults
that text has (alpha of leaky_relu, transpose_b of batch_matmul, ...).
"""

from convoy.relay.ast import op as get
from convoy.relay.op import annotation, contrib, elementwise, image, nn, tensor, vision
from convoy.relay.op.blocks import (
    adv_index,
    fixed_point_multiply,
    invert_permutation,
    matrix_set_diag,
    reinterpret,
    searchsorted,
    sliding_window,
    unravel_index,
)
from convoy.relay.op.elementwise import *  # noqa: F403
from convoy.relay.op.tensor import *  # noqa: F403

_TENSOR = [
    name
    for name, value in vars(tensor).items()
    if callable(value) and getattr(value, "__module__", "") == tensor.__name__ and name[0] != "_"
]
__all__ = [
    "adv_index",
    "annotation",
    "contrib",
    "fixed_point_multiply",
    "get",
    "image",
    "invert_permutation",
    "matrix_set_diag",
    "nn",
    "reinterpret",
    "searchsorted",
    "sliding_window",
    "unravel_index",
    "vision",
    *elementwise.__all__,
    *_TENSOR,
]
