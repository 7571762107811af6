"""Parts that patterns of several convolutions or GEMMs in sequence share."""

from __future__ import annotations

from tvm import relax

from ...graph.expr import op_name
from ...graph.function import used_vars
from ...ir.dtypes import HALF_DTYPES
from ...ir.workload import Workload
from .base import GraphView
from .chain import Chain
from .epilogue import extended
from .roots import Root, find_root


def convolution_at(graph: GraphView, var: relax.Var) -> Root | None:
    """The convolution of images of 16 bits that a variable is bound to, with a constant filter."""
    if op_name(graph.value[var]) != "relax.nn.conv2d":
        return None
    root = find_root(graph.bindings[graph.position[var]], graph)
    if root is None or used_vars(root.inputs[1]):
        return None
    is_half = root.workload.dtype in HALF_DTYPES
    return root if is_half and root.workload.out_dtype == root.workload.dtype else None


def is_pointwise(w: Workload) -> bool:
    """Return whether a workload is a 1x1 convolution of all pixels or a matmul, without groups."""
    sizes = (w.r, w.s, *w.stride, *w.dilation, w.groups)
    return sizes == (1,) * len(sizes) and not any(w.padding)


def chain_of(graph: GraphView, var: relax.Var, residual: bool = False) -> Chain:
    """A convolution with its bias and activation, as far as no tensor is added; with ``residual``
    one may be, in front of the activation."""
    chain = Chain([var], var)
    while (longer := extended(graph, chain)) is not None:
        if longer.epilogue.residual_last or (longer.epilogue.residual and not residual):
            break
        chain = longer
    return chain
