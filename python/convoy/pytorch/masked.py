"""Assignments of the form ``x[mask] = f(x[mask])`` as selections, and sums, means and extremes of
``f(x[mask])`` as those of selections.

How many elements a mask selects depends on values; an elementwise ``f`` can be computed of all.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node, map_arg

_aten = torch.ops.aten
_PUTS = (_aten.index_put.default, _aten._unsafe_index_put.default)
_MEANS = (_aten.mean.default, _aten.mean.dim)
#: Reductions, and what changes nothing in them.
_NEUTRAL: dict[Any, float] = {
    **dict.fromkeys((_aten.sum.default, _aten.sum.dim_IntList, *_MEANS), 0),
    **dict.fromkeys((_aten.max.default, _aten.amax.default), -math.inf),
    **dict.fromkeys((_aten.min.default, _aten.amin.default), math.inf),
}
#: The overloads of these with axes.
_AXES = {
    **dict.fromkeys(_NEUTRAL, _aten.sum.dim_IntList),
    **dict.fromkeys(_MEANS, _aten.mean.dim),
    **dict.fromkeys((_aten.max.default, _aten.amax.default), _aten.amax.default),
    **dict.fromkeys((_aten.min.default, _aten.amin.default), _aten.amin.default),
}


def select_by_mask(program: ExportedProgram) -> None:
    """Rewrite assignments through a mask of the leading axes, and reductions over what one selects,
    whose values are elementwise functions of what the same mask selects."""
    graph = program.graph
    for node in graph.nodes:
        if node.target in (_aten.index.Tensor, *_PUTS):
            _name_mask(node)
        elif node.target is _aten.masked_select.default and _is_alike(*node.args):
            x, mask = node.args
            node.target, node.args = _aten.index.Tensor, (x, [mask])
    for node in graph.nodes:
        with graph.inserting_before(node):
            if node.target in _PUTS and (chosen := _written(graph, node)) is not None:
                node.replace_all_uses_with(chosen)
            if node.target in _NEUTRAL and (reduced := _reduced(graph, node)) is not None:
                node.replace_all_uses_with(reduced)
    for check in graph.find_nodes(op="call_function", target=_aten._assert_scalar.default):
        graph.erase_node(check)  # of sizes that depend on values
    graph.eliminate_dead_code()


def _is_alike(x: Node, mask: Node) -> bool:
    return _type(x).shape == _type(mask).shape


def _name_mask(node: Node) -> None:
    """Index by a mask, instead of by all columns of the places where it is set."""
    indices = node.args[1]
    found = [_column(i) for i in indices if isinstance(i, Node) and _type(i).dim() == 1]
    if len(found) != len(indices) or not all(found):
        return
    (places, *others), columns = zip(*found, strict=True)
    mask = places.args[0]
    same = all(one is places for one in others)
    if same and columns == tuple(range(_type(mask).dim())) and _type(mask).dtype == torch.bool:
        node.update_arg(1, [mask])


def _column(index: Node) -> tuple[Node, int] | None:
    """The places of which an index is a column, and which one."""
    number = 0
    if index.target in (_aten.squeeze.dims, _aten.squeeze.dim, _aten.view.default):
        index = index.args[0]
        if index.target is _aten.slice.Tensor and index.args[1] == 1:
            index, _, number, *_ = index.args
        elif _type(index).shape[-1:] != (1,):
            return None
    elif index.target is _aten.select.int and index.args[1] == 1:
        index, _, number = index.args
    return (index, number) if index.target is _aten.nonzero.default else None


def _written(graph: Graph, put: Node) -> Node | None:
    """What an assignment through a mask makes of a tensor."""
    x, _, value, *accumulate = put.args
    rank, mask = _type(put).dim(), _mask(put)
    if mask is None or any(accumulate) or not _follows(value, mask, rank):
        return None
    where = _spread(graph, mask, rank)
    return _call(graph, _aten.where.self, where, _everywhere(graph, value, {}), x)


def _reduced(graph: Graph, node: Node) -> Node | None:
    """A reduction over all that a mask selects."""
    value, *given = node.args
    if not _is_dynamic(value) or _is_dynamic(node) or (mask := _mask_of(value)) is None:
        return None
    held, masked = _type(value).dim(), _type(mask).dim()
    rank = held + masked - 1
    if not _follows(value, mask, rank):
        return None
    over = [axis % held for axis in given[0]] if given and given[0] else range(held)
    axes = [*range(masked), *(axis + masked - 1 for axis in over if axis)]
    everywhere, where = _everywhere(graph, value, {}), _spread(graph, mask, rank)
    dtype = _type(value).dtype
    neutral = _NEUTRAL[node.target]
    if math.isinf(neutral) and not dtype.is_floating_point:
        neutral = torch.iinfo(dtype).max if neutral > 0 else torch.iinfo(dtype).min
    rest = _call(graph, _aten.full.default, [], neutral, dtype=dtype)
    chosen = _call(graph, _aten.where.self, where, everywhere, rest)
    reduced = _call(graph, _AXES[node.target], chosen, axes, **node.kwargs)
    if node.target in _MEANS:
        count = _call(graph, _aten.sum.dim_IntList, mask, [])
        share = _call(graph, _aten.reciprocal.default, count)
        scale = _call(graph, _aten.mul.Tensor, share, _type(mask).numel())
        scale = _call(graph, _aten._to_copy.default, scale, dtype=_type(node).dtype)
        reduced = _call(graph, _aten.mul.Tensor, reduced, scale)
    return _call(graph, _aten.reshape.default, reduced, [*_type(node).shape])


def _mask_of(value: Node) -> Node | None:
    """The mask of the first selection among what a value is made of."""
    if _selects(value):
        return _mask(value)
    parts = (one for one in value.all_input_nodes if _is_dynamic(one))
    return next(filter(None, map(_mask_of, parts)), None)


def _spread(graph: Graph, mask: Node, rank: int) -> Node:
    """A mask of the leading axes of a tensor, with one axis for each of the tensor's."""
    behind = [1] * (rank - _type(mask).dim())
    return _call(graph, _aten.reshape.default, mask, [*_type(mask).shape, *behind])


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
