"""A dataflow graph by index: who uses what, and which node all paths to the result pass."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from convoy.relay.ast import Expr
from convoy.relay.visit import children, post_order


class Graph:
    """The nodes of an expression, inner ones first, with their users.

    Attributes:
        nodes: All nodes; the last one is the expression itself.
        users: For each node, the indices of the nodes that use it.
    """

    def __init__(self, expr: Expr) -> None:
        self.nodes = list(post_order(expr))
        self._index = {id(node): i for i, node in enumerate(self.nodes)}
        self.users: list[list[int]] = [[] for _ in self.nodes]
        for i, node in enumerate(self.nodes):
            for child in children(node):
                self.users[self._index[id(child)]].append(i)

    def users_of(self, node: Expr) -> Sequence[Expr]:
        """Return the nodes that use a node."""
        return [self.nodes[i] for i in self.users[self._index[id(node)]]]

    @cached_property
    def _dominators(self) -> tuple[list[int | None], list[int]]:
        """The immediate post-dominator of each node, and its depth in their tree."""
        parent: list[int | None] = [None] * len(self.nodes)
        depth = [1] * len(self.nodes)
        for i in reversed(range(len(self.nodes) - 1)):
            common: int | None = None
            for n, user in enumerate(self.users[i]):
                common = user if n == 0 else _common(common, user, parent, depth)
            parent[i] = common
            depth[i] = 1 if common is None else depth[common] + 1
        return parent, depth

    @cached_property
    def _dominated(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.nodes]
        for i in reversed(range(len(self.nodes))):
            parent = self._dominators[0][i]
            if parent is not None:
                found[parent].append(i)
        return found

    def dominated_by(self, node: Expr) -> Sequence[Expr]:
        """Return the nodes whose immediate post-dominator is `node`."""
        return [self.nodes[i] for i in self._dominated[self._index[id(node)]]]

    def dominates(self, node: Expr, other: Expr) -> bool:
        """Check whether all paths from `other` to the result pass `node`."""
        parents, depth = self._dominators
        target = self._index[id(node)]
        at: int | None = self._index[id(other)]
        while at is not None and depth[at] > depth[target]:
            at = parents[at]
        return at == target


def _common(
    a: int | None, b: int | None, parent: Sequence[int | None], depth: Sequence[int]
) -> int | None:
    """Return the nearest node on both paths to the root."""
    while a != b:
        if a is None or b is None:
            return None
        if depth[a] >= depth[b]:
            a, b = parent[a], b
        else:
            b = parent[b]
    return a
