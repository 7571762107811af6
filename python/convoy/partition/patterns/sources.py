"""Trace a value through views and scalar factors back to the tensors that it is a view of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import relax

from ...graph.expr import (
    as_numpy,
    dtype_of,
    inverse,
    is_const,
    op_name,
    permutation_of,
    shape_of,
)
from .base import GraphView
from .strided import Strided

#: From the layout of an operation's operand to that of its result.
Step = Callable[[Strided], "Strided | None"]


@dataclass(frozen=True)
class Source:
    """A value as ``factor`` times a view of ``tensor``; ``covered`` are the variables between."""

    tensor: relax.Expr
    layout: Strided
    factor: float = 1.0
    covered: tuple[relax.Var, ...] = ()


def sources(graph: GraphView, value: relax.Expr, scaled: bool = False) -> list[Source]:
    """Return the tensors that a value is a view of, furthest back first, and the value itself.

    With ``scaled`` also through products with numbers, and through casts to float32 and back: the
    kernel multiplies in float32, too.
    """
    found = [Source(value, Strided.compact(shape_of(value)))]
    dtype = dtype_of(value)
    steps: list[Step] = []
    covered: tuple[relax.Var, ...] = ()
    factor = 1.0
    while (before := _operand(graph, value, scaled)) is not None:
        operand, step, number, between = before
        covered, factor = (*covered, *between), factor * number
        steps.insert(0, step)
        layout: Strided | None = Strided.compact(shape_of(operand))
        for step in steps:
            layout = step(layout) if layout is not None else None
        if layout is not None and dtype_of(operand) == dtype:
            found.insert(0, Source(operand, layout, factor, covered))
        value = operand
    return found


def destinations(graph: GraphView, var: relax.Var) -> list[Source]:
    """Tensors that hold a value in another order and shape: the one furthest on first, at the end
    the value's own. The layout is that of the value in the tensor."""
    found = [Source(var, Strided.compact(shape_of(var)))]
    back: list[Step] = []
    covered: tuple[relax.Var, ...] = (var,)
    reader = graph.only_reader(var)
    while reader is not None and op_name(graph.value[reader]) in _MOVES:
        call = graph.value[reader]
        back.insert(0, _undone(call))
        layout: Strided | None = Strided.compact(shape_of(reader))
        for step in back:
            layout = step(layout) if layout is not None else None
        covered = (*covered, reader)
        if layout is not None:
            found.insert(0, Source(reader, layout, 1.0, covered[:-1]))
        reader = graph.only_reader(reader)
    return found


_MOVES = ("relax.reshape", "relax.permute_dims")


def _undone(call: relax.Call) -> Step:
    shape = shape_of(call.args[0])
    if op_name(call) == "relax.reshape":
        return lambda layout: layout.reshaped(shape)
    axes = inverse(permutation_of(call))
    return lambda layout: layout.permuted(axes)


Before = tuple[relax.Expr, Step, float, tuple[relax.Var, ...]]


def _operand(graph: GraphView, value: relax.Expr, scaled: bool) -> Before | None:
    """(operand, step, number, variables) of the view or product that made a value."""
    if not isinstance(value, relax.Var) or value not in graph.value:
        return None
    made = graph.value[value]
    if isinstance(made, relax.TupleGetItem):
        return _part(graph, value, made)
    name = op_name(made)
    if scaled and (product := number_times(made)) is not None:
        operand, number = product
        return operand, _same, number, (value,)
    if scaled and name == "relax.astype" and "float32" in (dtype_of(value), dtype_of(made.args[0])):
        return made.args[0], _same, 1.0, (value,)
    step = _STEPS[name](made) if name in _STEPS else None
    return None if step is None else (made.args[0], step, 1.0, (value,))


def _same(layout: Strided) -> Strided:
    return layout


def number_times(call: relax.Expr) -> tuple[relax.Expr, float] | None:
    """(x, number) of a product of a tensor and a number, or of a division by one."""
    name = op_name(call)
    if name not in ("relax.multiply", "relax.divide"):
        return None
    orders = [call.args] if name == "relax.divide" else [call.args, tuple(reversed(call.args))]
    for x, other in orders:
        if not is_const(other) or as_numpy(other).size != 1 or shape_of(x) != shape_of(call):
            continue
        number = float(as_numpy(other).item())
        if not dtype_of(x).startswith(("float", "bfloat")) or not abs(number) < 1e30:
            continue
        if name == "relax.multiply":
            return x, number
        if abs(number) > 1e-30:
            return x, 1.0 / number
    return None


def _part(graph: GraphView, var: relax.Var, item: relax.TupleGetItem) -> Before | None:
    """Return a part of a split."""
    whole = item.tuple_value
    call = graph.definition(whole)
    if op_name(call) != "relax.split":
        return None
    axis = int(call.attrs.axis) % len(shape_of(call.args[0]))
    sizes = [shape_of_type(field)[axis] for field in call.ty.fields]
    begin = sum(sizes[: item.index])
    extent = sizes[item.index]

    def cut(layout: Strided) -> Strided | None:
        return layout.sliced(axis, begin, extent)

    return call.args[0], cut, 1.0, (var, whole)


def shape_of_type(tensor: relax.TensorType) -> tuple[int, ...]:
    return tuple(int(extent) for extent in tensor.shape.values)


def _reshape(call: relax.Call) -> Step:
    shape = shape_of(call)
    return lambda layout: layout.reshaped(shape)


def _permute(call: relax.Call) -> Step:
    axes = permutation_of(call)
    return lambda layout: layout.permuted(axes)


def _broadcast(call: relax.Call) -> Step:
    shape = shape_of(call)
    return lambda layout: layout.spread(shape)


def _take(call: relax.Call) -> Step | None:
    """Return one element along an axis."""
    index = call.args[1]
    if call.attrs.axis is None or not is_const(index) or as_numpy(index).ndim:
        return None
    axis = int(call.attrs.axis) % len(shape_of(call.args[0]))
    extent, at = shape_of(call.args[0])[axis], int(as_numpy(index))
    return (lambda layout: layout.taken(axis, at)) if 0 <= at < extent else None


def _slice(call: relax.Call) -> Step | None:
    source, result = shape_of(call.args[0]), shape_of(call)
    if not all(isinstance(bound, relax.Tuple) for bound in call.args[1:]):
        return None
    axes, begins, _, *steps = ([int(f) for f in bound.fields] for bound in call.args[1:])
    strides = steps[0] if steps else [1] * len(axes)
    cuts = []
    for axis, begin, stride in zip(axes, begins, strides, strict=True):
        axis %= len(source)
        begin = min(max(begin + (source[axis] if begin < 0 else 0), 0), source[axis])
        if stride < 1:
            return None
        cuts.append((axis, begin, result[axis], stride))

    def cut(layout: Strided) -> Strided | None:
        found: Strided | None = layout
        for axis, begin, extent, stride in cuts:
            found = found and found.sliced(axis, begin, extent, stride)
        return found

    return cut


_STEPS: dict[str, Callable[[relax.Call], Step | None]] = {
    "relax.reshape": _reshape,
    "relax.permute_dims": _permute,
    "relax.broadcast_to": _broadcast,
    "relax.take": _take,
    "relax.strided_slice": _slice,
}
