"""Which values of a graph share memory while it is rewritten without writes in place."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.fx import Graph, Node

_aten = torch.ops.aten
#: A base with new values for a view of it, by the operators that make the view; None for a view of
#: the whole base.
_SCATTERS = {
    _aten.alias.default: None,
    _aten.slice.Tensor: _aten.slice_scatter.default,
    _aten.select.int: _aten.select_scatter.default,
}


class Whole(Exception):
    """A program that cannot be decomposed in parts."""


class Memory:
    """The values that a rewritten graph has for those of the original, and their memory.

    Attributes:
        values: The tensors of each result, by nodes of the original.
        inputs: What was given for each input.
    """

    def __init__(self, graph: Graph) -> None:
        self.values: dict[Node, Sequence[Node]] = {}
        self.inputs: dict[Node, Node] = {}
        self._owner: dict[Node, Node] = {}
        self._fixed: set[Node] = set()
        self._last_use: dict[Node, Node] = {
            used: node for node in graph.nodes for used in node.all_input_nodes
        }

    def value(self, node: Node) -> Node:
        """The tensor that a node of the original is now."""
        (value,) = self.values[node]
        return value

    def add_input(self, node: Node, value: Node) -> None:
        self.values[node], self.inputs[node], self._owner[value] = [value], value, value

    def define(self, value: Node) -> None:
        """Add the result of a call that writes nothing: a view has the memory of its base, and each
        of several results, which are no views, memory of its own."""
        schema, inputs = getattr(value.target, "_schema", None), value.all_input_nodes
        if schema is None:  # operator.getitem
            owner = self._owner[inputs[0]]
            self._owner[value] = value if owner is inputs[0] else owner
        else:
            is_view = any(one.alias_info is not None for one in schema.returns)
            self._owner[value] = self._owner[inputs[0]] if is_view and inputs else value

    def check_views(self, call: Node, inputs: Sequence[Node], results: Sequence[Node]) -> None:
        """Allow no writes to what a call returns, and to its arguments, if what it decomposes into
        makes a copy of what is a view, or the other way around."""
        declared = any(one.alias_info is not None for one in call.target._schema.returns)
        owners = {self._owner[one] for one in inputs}
        if any((self._owner[one] in owners) != declared for one in results):
            self._fixed |= owners | {self._owner[one] for one in results}

    def write(self, call: Node, before: Node, after: Node, graph: Graph) -> None:
        """Have a value be another one from ``call`` on, and with it what it is a view of.

        Raises:
            Whole: Its memory is that of another value that is used later.
        """
        owner, replaced = self._owner[before], {before: after}
        if self._owner[after] is not after:
            self._fixed.add(self._owner[after])
        while before is not owner and before.target in _SCATTERS:
            base, *where = before.args
            if scatter := _SCATTERS[before.target]:
                after = graph.call_function(scatter, (base, after, *where))
                after.meta = {**call.meta, "val": base.meta["val"]}
                self._owner[after] = after
            replaced[base] = after
            before = base
        if before is not owner or owner in self._fixed:
            raise Whole
        for node, values in self.values.items():
            if all(self._owner[one] is not owner for one in values):
                continue
            if len(values) == 1 and values[0] in replaced:
                self.values[node] = [replaced[values[0]]]
            elif node in self._last_use and self._last_use[node] > call:
                raise Whole
