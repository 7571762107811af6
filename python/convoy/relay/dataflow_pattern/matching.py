"""One attempt to match a pattern, with what its parts have matched so far.

Patterns recurse along the graph (a path of a dominator, a redirected wildcard), so their `attempt`
is a generator for `trampoline.run`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay.ast import Expr
from convoy.relay.dataflow_pattern.graph import Graph
from convoy.relay.trampoline import Step, run


class Pattern:
    """Interface of a pattern for matching, grouping and rewriting."""

    def attempt(self, matching: Matching, expr: Expr) -> Any:
        """Match an expression: a bool, or a generator that returns one."""
        raise NotImplementedError

    def parts(self) -> Sequence[Pattern]:
        """Return the patterns inside, in the order of the inputs of a partition."""
        return ()

    def free_inputs(self, expr: Expr) -> Sequence[Expr]:
        """Return the inputs of a match that no part stands for: a leaf's match itself."""
        return () if self.parts() else (expr,)

    def interior(self, matched: dict[Pattern, list[Expr]]) -> list[Expr]:
        """Return expressions that are inside the match and no inputs, beyond those of parts."""
        return []

    def keeps_constant(self, expr: Expr) -> bool:
        """Check whether a constant that this matched stays inside a partition."""
        return False

    @property
    def is_callee(self) -> bool:
        """Whether only calls of a match are partitioned, not the match alone."""
        return False


class Matching:
    """The state of a match.

    Attributes:
        graph: The graph that the expressions are part of.
        matched: What each pattern has matched; a pattern that is used twice matches one node.
        remember: Whether a pattern has to match the same node again; False along a path.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.matched: dict[Pattern, list[Expr]] = {}
        self.remember = True
        self._order: list[Pattern] = []
        self._redirected: set[tuple[int, int]] = set()

    def match(self, pattern: Pattern, expr: Expr) -> bool:
        """Match from the beginning."""
        self.matched, self._order, self.remember = {}, [], True
        self._redirected.clear()
        return bool(run(self.visit(pattern, expr)))

    def visit(self, pattern: Pattern, expr: Expr) -> Step:
        """Match a part of the pattern."""
        if self.remember and pattern in self.matched:
            return self.matched[pattern][0] is expr
        mark = self.mark()
        found = yield pattern.attempt(self, expr)
        if found:
            self.matched.setdefault(pattern, []).append(expr)
            self._order.append(pattern)
        else:
            self.forget(mark)
        return found

    def visit_all(self, patterns: Sequence[Pattern], exprs: Sequence[Expr]) -> Step:
        """Match parts one by one; forget them all where one does not match."""
        if len(patterns) != len(exprs):
            return False
        mark = self.mark()
        for pattern, expr in zip(patterns, exprs, strict=True):
            if not (yield self.visit(pattern, expr)):
                self.forget(mark)
                return False
        return True

    def redirected(self, pattern: Pattern, target: Pattern, expr: Expr) -> Step:
        """Match another pattern in place of one, unless that is what is going on already."""
        key = (id(pattern), id(expr))
        if key in self._redirected:
            return False
        self._redirected.add(key)
        found = yield self.visit(target, expr)
        self._redirected.discard(key)
        return found

    def mark(self) -> int:
        """Return the point to which `forget` may come back."""
        return len(self._order)

    def forget(self, mark: int) -> None:
        """Forget what was matched since a mark."""
        for pattern in self._order[mark:]:
            self.matched.pop(pattern, None)
        del self._order[mark:]
