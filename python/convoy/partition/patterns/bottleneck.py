"""Bottlenecks of residual networks from their 3x3 convolution to the first one of the next
bottleneck, so that the narrow tensors are never in memory and the wide one is not read again."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tvm import relax

from ...graph.function import used_vars
from ...ir.bottleneck import Bottleneck
from ...ir.workload import Workload
from .back_to_back import chain_of, convolution_at, is_pointwise
from .base import GraphView, Pattern, Site, fitted
from .chain import Chain
from .roots import Root

#: A convolution with what is taken behind it.
_Part = tuple[Root, Chain]


class BottleneckPattern(Pattern):
    """Convolutions of 16 bits whose result only a 1x1 convolution reads, from the first to the
    activation of the second, and on to that of each 1x1 convolution that reads the second one's
    result."""

    name = "bottleneck"
    optional = False

    def sites(self, graph: GraphView) -> Iterator[Site]:
        for binding in graph.bindings:
            conv = convolution_at(graph, binding.var)
            if conv is None or not _is_first(conv.workload):
                continue
            first = conv, chain_of(graph, binding.var)
            reader = graph.only_reader(first[1].end)
            second = _reading(graph, reader, first[1].end, residual=True)
            if second is None:
                continue
            yield _site(first, second)
            wide = second[1].end
            for reader in dict.fromkeys(graph.readers[wide]):
                third = _reading(graph, reader, wide)
                if third is not None and _is_ready(graph, third[1].bias, wide):
                    yield _site(first, second, third)


def _is_first(w: Workload) -> bool:
    return w.r * w.s > 1 and w.stride == (1, 1) and w.groups == 1


def _reading(
    graph: GraphView, var: relax.Var | None, read: relax.Var, residual: bool = False
) -> _Part | None:
    """The 1x1 convolution that a variable is bound to, if it reads another one."""
    conv = convolution_at(graph, var) if var is not None else None
    if var is None or conv is None or not is_pointwise(conv.workload):
        return None
    return (conv, chain_of(graph, var, residual)) if conv.inputs[0].same_as(read) else None


def _is_ready(graph: GraphView, bias: relax.Expr | None, wide: relax.Var) -> bool:
    """Return whether a bias is there when the wide tensor is, where the kernel is called."""
    read = () if bias is None else used_vars(bias)
    return all(graph.position[var] < graph.position[wide] for var in read)


def _site(first: _Part, second: _Part, third: _Part | None = None) -> Site:
    (conv, middle), (expand, wide) = first, second
    parts = [first, second, third] if third is not None else [first, second]
    bottleneck = Bottleneck(expand.workload.k, wide.epilogue)
    if third is not None:
        bottleneck = dataclasses.replace(
            bottleneck, reduce=third[0].workload.k, reduce_epilogue=third[1].epilogue
        )
    workload = dataclasses.replace(
        conv.workload, op="bottleneck", epilogue=middle.epilogue, bottleneck=bottleneck
    )
    filters = [root.inputs[1] for root, _ in parts]
    added = [wide.residual, *(chain.bias for _, chain in parts)]
    inputs = [conv.inputs[0], *filters, *(value for value in added if value is not None)]
    return Site(
        covered=tuple(var for _, chain in parts for var in chain.covered),
        outputs=tuple(chain.end for _, chain in parts[1:]),
        workload=workload,
        inputs=fitted(inputs, workload),
        joint=True,
    )
