"""Relax operators that Convoy adds to TVM, and the gradients of all operators.

Importing this package registers them: ``relax.convoy.conv2d_dgrad`` (with ``conv3d_dgrad``) and
``relax.convoy.conv2d_wgrad`` read ``R.convoy.conv2d_dgrad(...)`` in TVMScript.
"""

from . import (  # noqa: F401  (each registers its gradient rules)
    gradient_convolution,
    gradient_elementwise,
    gradient_gather,
    gradient_loss,
    gradient_matmul,
    gradient_norm,
    gradient_pool,
    gradient_reduce,
    gradient_shape,
    random,
)
from .conv_attrs import DGRAD, DGRAD_3D, WGRAD, ConvAttrs, ConvOptions, conv_attrs
from .conv_backward import conv2d_dgrad, conv2d_wgrad, conv3d_dgrad
from .conv_workload import conv_workload, forward_workload

__all__ = [
    "DGRAD",
    "DGRAD_3D",
    "WGRAD",
    "ConvAttrs",
    "ConvOptions",
    "conv2d_dgrad",
    "conv2d_wgrad",
    "conv3d_dgrad",
    "conv_attrs",
    "conv_workload",
    "forward_workload",
]
