"""Relax operators that convoy adds to TVM: the two gradients of a 2d convolution.

They are registered when :mod:`convoy.graph` is imported, under the names
``relax.convoy.conv2d_dgrad`` and ``relax.convoy.conv2d_wgrad``; in TVMScript they read
``R.convoy.conv2d_dgrad(...)`` and ``R.convoy.conv2d_wgrad(...)``.
"""

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
