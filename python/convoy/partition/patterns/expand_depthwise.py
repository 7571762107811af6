"""The 1x1 convolution that widens an inverted residual with the depthwise convolution behind it, so
that the wide tensor between them is never in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tvm import relax

from ...ir.expansion import Expansion
from .back_to_back import chain_of, convolution_at, is_pointwise
from .base import GraphView, Pattern, Site, fitted
from .chain import Chain
from .roots import Root


class ExpandDepthwisePattern(Pattern):
    """1x1 convolutions of 16 bits whose result only a depthwise convolution reads, from the first
    convolution to the activation of the second."""

    name = "expand_depthwise"
    optional = False

    def sites(self, graph: GraphView) -> Iterator[Site]:
        for binding in graph.bindings:
            expand = convolution_at(graph, binding.var)
            if expand is None or not is_pointwise(expand.workload):
                continue
            wide = chain_of(graph, binding.var)
            reader = graph.only_reader(wide.end)
            depthwise = convolution_at(graph, reader) if reader is not None else None
            if reader is not None and depthwise is not None and _reads(depthwise, wide.end):
                yield _site(expand, wide, depthwise, chain_of(graph, reader))


def _reads(depthwise: Root, wide: relax.Var) -> bool:
    """Return whether a depthwise convolution reads a tensor, with as many results as channels."""
    w = depthwise.workload
    return w.is_depthwise and w.k == w.c and depthwise.inputs[0].same_as(wide)


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
