"""The 1x1 convolution that widens an inverted residual with the depthwise convolution behind it, so
that the wide tensor between them is never in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tvm import relax

from ...graph.expr import op_name
from ...graph.rewriter import used_vars
from ...ir.dtypes import HALF_DTYPES
from ...ir.expansion import Expansion
from ...ir.workload import Workload
from .base import GraphView, Pattern, Site, fitted
from .chain import Chain
from .epilogue import extended
from .roots import Root, find_root


class ExpandDepthwisePattern(Pattern):
    """1x1 convolutions of 16 bits whose result only a depthwise convolution reads, from the first
    convolution to the activation of the second."""

    name = "expand_depthwise"
    optional = False

    def sites(self, graph: GraphView) -> Iterator[Site]:
        for binding in graph.bindings:
            expand = _convolution(graph, binding.var)
            if expand is None or not _is_pointwise(expand.workload):
                continue
            wide = _chain(graph, binding.var)
            reader = graph.only_reader(wide.end)
            depthwise = _convolution(graph, reader) if reader is not None else None
            if reader is not None and depthwise is not None and _reads(depthwise, wide.end):
                yield _site(expand, wide, depthwise, _chain(graph, reader))


def _convolution(graph: GraphView, var: relax.Var) -> Root | None:
    """The convolution of images that a variable is bound to, with a constant filter."""
    if op_name(graph.value[var]) != "relax.nn.conv2d":
        return None
    root = find_root(graph.bindings[graph.position[var]], graph)
    if root is None or used_vars(root.inputs[1]):
        return None
    is_half = root.workload.dtype in HALF_DTYPES
    return root if is_half and root.workload.out_dtype == root.workload.dtype else None


def _is_pointwise(w: Workload) -> bool:
    sizes = (w.r, w.s, *w.stride, *w.dilation, w.groups)
    return sizes == (1,) * len(sizes) and not any(w.padding)


def _reads(depthwise: Root, wide: relax.Var) -> bool:
    """Whether it is a depthwise convolution of a tensor, with as many results as channels."""
    w = depthwise.workload
    return w.is_depthwise and w.k == w.c and depthwise.inputs[0].same_as(wide)


def _chain(graph: GraphView, var: relax.Var) -> Chain:
    """A convolution with its bias and activation, as far as there is no residual."""
    chain = Chain([var], var)
    while (longer := extended(graph, chain)) is not None and longer.residual is None:
        chain = longer
    return chain


def _site(expand: Root, wide: Chain, depthwise: Root, chain: Chain) -> Site:
    workload = dataclasses.replace(
        depthwise.workload,
        op="expand_depthwise",
        epilogue=chain.epilogue,
        expansion=Expansion(expand.workload.c, wide.epilogue),
    )
    biases = [bias for bias in (wide.bias, chain.bias) if bias is not None]
    inputs = [expand.inputs[0], depthwise.inputs[1], expand.inputs[1], *biases]
    covered = (*wide.covered, *chain.covered)
    return Site(covered, (chain.end,), workload, fitted(inputs, workload), joint=True)
