"""Builders of calls under TVM 0.18's names: `relay.add`, `relay.nn.conv2d`, `relay.image.resize2d`.

The builders are those that the families of `relay.ops` register; the modules here gather them by
namespace. Signatures and defaults are those of TVM 0.18's Python helpers, which differ from the
defaults of the text format (alpha of leaky_relu, transpose_b of batch_matmul, ...).
"""

from convoy.relay.builder import const
from convoy.relay.op import annotation, contrib, image, nn, op, random, strategy, tensor, vision
from convoy.relay.op.op import *  # noqa: F403
from convoy.relay.op.tensor import *  # noqa: F403

__all__ = [
    "annotation",
    "const",
    "contrib",
    "image",
    "nn",
    "random",
    "strategy",
    "vision",
    *op.__all__,
    *tensor.__all__,
]
