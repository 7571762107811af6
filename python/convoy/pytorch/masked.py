"""Assignments of the form ``x[mask] = f(x[mask])`` as selections.

How many elements a mask selects depends on values; an elementwise ``f`` can be computed of all.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node, map_arg

_aten = torch.ops.aten
_PUTS = (_aten.index_put.default, _aten._unsafe_index_put.default)


def select_by_mask(program: ExportedProgram) -> None:
    """Rewrite assignments through a mask of the leading axes, whose values are elementwise
    functions of what the same mask selects."""
    graph = program.graph
    for put in graph.nodes:
        if put.target not in _PUTS or any(put.args[3:]) or (mask := _mask(put)) is None:
            continue
        if _is_dynamic(put.args[2]) and _follows(put.args[2], mask, _type(put).dim()):
            with graph.inserting_before(put):
                value = _everywhere(graph, put.args[2], {})
                behind = [1] * (_type(put).dim() - _type(mask).dim())
                where = _call(graph, _aten.reshape.default, mask, [*_type(mask).shape, *behind])
                put.replace_all_uses_with(_call(graph, _aten.where.self, where, value, put.args[0]))
    for check in graph.find_nodes(op="call_function", target=_aten._assert_scalar.default):
        graph.erase_node(check)  # of sizes that depend on values
    graph.eliminate_dead_code()


def _mask(node: Node) -> Node | None:
    """The one index of a node that reads or writes through it, if that is a mask."""
    (index, *others) = node.args[1]
    is_mask = not others and isinstance(index, Node) and _type(index).dtype == torch.bool
    return index if is_mask else None


def _is_same(a: Any, b: Any) -> bool:
    """Whether two arguments have the same value, such as two times ``x > 0``."""
    if a is b or not (isinstance(a, Node) and isinstance(b, Node)):
        return a is b or bool(a == b)
    if a.target != b.target or a.kwargs != b.kwargs or len(a.args) != len(b.args):
        return False
    return bool(a.args) and all(map(_is_same, a.args, b.args))


def _selects(node: Node) -> bool:
    return node.target is _aten.index.Tensor


def _follows(value: Node, mask: Node, rank: int) -> bool:
    """Whether each element is a function of what the mask selects at the same place of tensors of
    this rank."""
    if not _is_dynamic(value):
        return _type(value).dim() <= rank - _type(mask).dim()
    if _selects(value):
        return _is_same(_mask(value), mask) and _type(value.args[0]).dim() == rank
    pointwise = torch.Tag.pointwise in getattr(value.target, "tags", ())
    return pointwise and all(_follows(one, mask, rank) for one in value.all_input_nodes)


def _everywhere(graph: Graph, value: Node, done: dict[Node, Node]) -> Node:
    """The value at all places."""
    if not _is_dynamic(value):
        return value
    if _selects(value):
        return value.args[0]
    if value not in done:
        args = map_arg(value.args, lambda one: _everywhere(graph, one, done))
        done[value] = _call(graph, value.target, *args, **value.kwargs)
    return done[value]


def _call(graph: Graph, target: Any, *args: Any, **kwargs: Any) -> Node:
    """A call with the type of its result."""
    node = graph.call_function(target, args, kwargs)
    types = map_arg(args, lambda one: one.meta["val"])
    node.meta["val"] = target(*types, **kwargs)
    return node


def _type(node: Node) -> torch.Tensor:
    value: torch.Tensor = node.meta["val"]
    return value


def _is_dynamic(node: Node) -> bool:
    return any(isinstance(size, torch.SymInt) for size in _type(node).shape)
