"""Imported model -> normal form -> regions -> rewritten graph -> executable."""

from . import (  # noqa: F401  (rules)
    gradient,
    gradient_convolution,
    gradient_elementwise,
    gradient_norm,
    gradient_shape,
)
from .dataflow import Dataflow, Operation, dataflow
from .lower import lower
from .normalize import normalize
from .ops import conv2d_dgrad, conv2d_wgrad
from .regions import Region, Regions, find_regions, select
from .rewrite import rewrite

__all__ = [
    "Dataflow",
    "Operation",
    "Region",
    "Regions",
    "conv2d_dgrad",
    "conv2d_wgrad",
    "dataflow",
    "find_regions",
    "lower",
    "normalize",
    "rewrite",
    "select",
]
