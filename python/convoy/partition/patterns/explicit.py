"""Patterns written down as an expression, in TVM's pattern language."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tvm import relax
from tvm.relax.dpl import DFPattern

from ...ir.workload import Workload
from .base import GraphView, Pattern, Site

#: From a match to the problem and its operands; None where it is none after all.
ToWorkload = Callable[
    [Mapping[DFPattern, relax.Expr], relax.Var], "tuple[Workload, Sequence[relax.Expr]] | None"
]


class Explicit(Pattern):
    """One expression, such as ``is_op("relax.nn.relu")(is_op("relax.nn.conv2d")(x, w))``.

    ``expression`` is a ``tvm.relax.dpl`` pattern; the calls in it are covered, its wildcards are
    read from outside. ``workload`` gets what each part of the pattern matched (a dictionary by
    pattern) and the variable that holds the whole, and gives the problem with its operands in
    order, or None.
    """

    def __init__(self, name: str, expression: DFPattern, workload: ToWorkload) -> None:
        self.name, self._expression, self._workload = name, expression, workload

    def sites(self, graph: GraphView) -> Iterator[Site]:
        values = graph.value
        bound = {value: var for var, value in values.items()}
        for binding in graph.bindings:
            matched = self._expression.extract_matched_expr(binding.value, values)
            if matched is None:
                continue
            parts = dict(matched.items())
            covered = self._covered(parts, bound, binding.var)
            found = self._workload(parts, binding.var)
            if found is not None:
                workload, inputs = found
                covered.sort(key=graph.position.__getitem__)
                yield Site(tuple(covered), (binding.var,), workload, tuple(inputs))

    @staticmethod
    def _covered(
        parts: Mapping[DFPattern, relax.Expr],
        bound: Mapping[relax.Expr, relax.Var],
        last: relax.Var,
    ) -> list[relax.Var]:
        """Variables of the calls that the pattern names."""
        covered = {last}
        for part, expr in parts.items():
            if isinstance(part, relax.dpl.CallPattern):
                var = expr if isinstance(expr, relax.Var) else bound.get(expr)
                if var is not None:
                    covered.add(var)
        return list(covered)
