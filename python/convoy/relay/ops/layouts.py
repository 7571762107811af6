"""Changing layouts by reshapes and transposes of Relax."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from convoy.relay.ast import Call, Expr, Var
from convoy.relay.attrs import Attrs
from convoy.relay.layout import Layout, layout
from convoy.relay.ops.relax_call import OpCall, RelaxExpr
from convoy.relay.types import TensorType

Converter = Callable[[OpCall], RelaxExpr]


def to_plain(op: OpCall, value: RelaxExpr, source: Layout, shape: Sequence[int]) -> RelaxExpr:
    """Merge split axes: `NCHW16c` becomes `NCHW`.

    Args:
        op: The call being converted.
        value: The tensor, in layout `source`.
        source: Its layout.
        shape: Its shape.

    Returns:
        The tensor with its plain axes in the order of `source.axes`.
    """
    order, merged = [], []
    for axis in source.axes:
        places = [i for i, (a, f) in enumerate(source.parts) if a == axis and not f]
        places += [i for i, (a, f) in enumerate(source.parts) if a == axis and f]
        order += places
        size = 1
        for i in places:
            size *= shape[i]
        merged.append(size)
    value = op.permute(value, order)
    return value if len(merged) == len(shape) else op.reshape(value, merged)


def from_plain(
    op: OpCall, value: RelaxExpr, axes: str, target: Layout, type_: TensorType
) -> RelaxExpr:
    """Bring a tensor of plain `axes` to the layout `target`, in which it has the type `type_`."""
    if target.is_plain:
        return op.permute(value, [axes.index(a) for a in target.axes])
    shape = op.static(type_)
    sizes = dict(zip(target.parts, shape, strict=False))
    parts = [(a, f) for axis in axes for a, f in _outer_first(target, axis)]
    split = op.reshape(value, [sizes[p] for p in parts])
    return op.permute(split, [parts.index(p) for p in target.parts])


def _outer_first(target: Layout, axis: str) -> list[tuple[str, int]]:
    mine = [p for p in target.parts if p[0] == axis]
    return sorted(mine, key=lambda p: p[1] != 0)


def transform(op: OpCall, value: RelaxExpr, source: str, target: str) -> RelaxExpr:
    """Change the layout of argument 0 to another of the same axes.

    Raises:
        UnsupportedOp: Sizes that the blocks of a layout do not divide.
    """
    src, dst = layout(source), layout(target)
    if src.is_plain and dst.is_plain:
        return op.permute(value, [src.index(a) for a in dst.axes])
    shape = op.shape(0)
    plain = src.to_axes(shape, src.axes)
    if dst.to_axes(op.result_shape(), src.axes) != plain:
        raise op.unsupported(
            f"{source} to {target} of shape {list(shape)}", "sizes that the blocks divide"
        )
    value = to_plain(op, value, src, shape)
    return from_plain(op, value, src.axes, dst, op.result)


def over_plain(convert: Converter) -> Converter:
    """Let a converter see argument 0 and the result in a plain layout: `NCHW` for `NCHW16c`."""

    def convert_any(op: OpCall) -> RelaxExpr:
        found = layout(op.attrs["layout"])
        if found.is_plain:
            return convert(op)
        data = _typed(Var("data"), _plain_type(op.type(0), found))
        attrs = {**op.attrs, "layout": found.axes}
        call = Call(op.call.op, [data, *op.call.args[1:]], Attrs(op.attrs.cls, attrs))
        _typed(call, _plain_type(op.result, found))
        value = to_plain(op, op.args[0], found, op.shape(0))
        result = convert(OpCall(call, [value, *op.args[1:]], op.builder))
        return from_plain(op, op.emit(result), found.axes, found, op.result)

    return convert_any


def _plain_type(type_: TensorType, found: Layout) -> TensorType:
    return TensorType(found.to_axes(type_.shape, found.axes), type_.dtype)


def _typed(node: Expr, type_: TensorType) -> Expr:
    object.__setattr__(node, "checked_type_", type_)
    return node
