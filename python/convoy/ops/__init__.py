"""Relax operators that Convoy adds to TVM, and the gradients of all operators.

Importing this package registers them: ``relax.convoy.conv2d_dgrad`` and
``relax.convoy.conv2d_wgrad`` read ``R.convoy.conv2d_dgrad(...)`` in TVMScript.
"""

from . import (  # noqa: F401  (each registers its gradient rules)
    gradient_convolution,
    gradient_elementwise,
    gradient_norm,
    gradient_shape,
)
from .conv2d_backward import (
    DGRAD,
    WGRAD,
    ConvAttrs,
    conv2d_dgrad,
    conv2d_wgrad,
    conv_attrs,
    forward_workload,
)

__all__ = [
    "DGRAD",
    "WGRAD",
    "ConvAttrs",
    "conv2d_dgrad",
    "conv2d_wgrad",
    "conv_attrs",
    "forward_workload",
]
