"""Patterns grown by a rule: from a start along single-reader edges, as far as the rule goes."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence

from tvm import relax

from ...ir.workload import Workload
from .base import GraphView, Pattern, Site


class Grown(Pattern):
    """Every prefix of a chain of operations that has a workload is a site.

    :meth:`starts` says where a chain begins, :meth:`takes` whether the next operation belongs to
    it, :meth:`workload` what problem a chain is.
    """

    @abc.abstractmethod
    def starts(self, graph: GraphView, var: relax.Var) -> bool:
        """Return whether a chain starts at a variable's operation."""

    @abc.abstractmethod
    def takes(self, graph: GraphView, chain: Sequence[relax.Var], reader: relax.Var) -> bool:
        """Return whether the only reader of a chain's end belongs to it."""

    @abc.abstractmethod
    def workload(
        self, graph: GraphView, chain: Sequence[relax.Var]
    ) -> tuple[Workload, Sequence[relax.Expr]] | None:
        """Return the workload of a chain, and its operands in order; None if the chain has none."""

    def sites(self, graph: GraphView) -> Iterator[Site]:
        for binding in graph.bindings:
            if not self.starts(graph, binding.var):
                continue
            chain = [binding.var]
            while True:
                if (found := self.workload(graph, chain)) is not None:
                    yield Site(tuple(chain), (chain[-1],), found[0], tuple(found[1]))
                reader = graph.only_reader(chain[-1])
                if reader is None or not self.takes(graph, chain, reader):
                    break
                chain.append(reader)
