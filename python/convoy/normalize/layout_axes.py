"""Layout rules of operators along axes of channels-last views (see ``layout.py``)."""

from __future__ import annotations

from tvm import relax

from ..graph.expr import call_like, ints, permute, rank_of, shape_of
from .layout import OF_GROUPS, ChannelsLast, keeps_order, rule


@rule("nn.softmax", "nn.log_softmax")
def _softmax(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    if not p.has_view(call.args[0]):
        return None
    axis = p.axis(call.attrs.axis, rank_of(call))
    return p.unview(p.emit(call_like(call, [p.view(call.args[0])], axis=axis)))


@rule("nn.group_norm", "nn.instance_norm")
def _group_norm(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    if not p.has_view(call.args[0]):
        return None
    rank = rank_of(call)
    axes = sorted(p.axis(a, rank) for a in ints(call.attrs.axes))
    channel = p.axis(call.attrs.channel_axis, rank)
    if channel != rank - 1:
        return None
    args = [p.view(call.args[0]), *call.args[1:]]
    return p.unview(p.emit(call_like(call, args, axes=axes, channel_axis=channel)))


@rule("mean", "sum", "max", "min", "prod", "std", "variance")
def _reduction(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    if not p.has_view(call.args[0]):
        return None
    every, rank = call.attrs.axis is None, rank_of(call.args[0])
    axes = sorted(range(rank) if every else (a % rank for a in ints(call.attrs.axis)))
    reduced = [p.axis(a, rank) for a in axes]
    if call.attrs.keepdims:
        return p.unview(p.emit(call_like(call, [p.view(call.args[0])], axis=reduced)))
    left = [a for a in p.to_last[rank] if a not in axes]
    result = call_like(call, [p.view(call.args[0])], axis=reduced)
    if left == sorted(left):
        return result
    # The axes that remain come out in another order, which may be that of a view.
    if p.to_last.get(len(left)) == tuple(sorted(left).index(a) for a in left):
        return p.unview(p.emit(result))
    return None


@rule("concat")
def _concat(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    fields = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else []
    if call.attrs.axis is None or not any(p.has_view(field) for field in fields):
        return None
    views = relax.Tuple([p.view(field) for field in fields])
    axis = p.axis(call.attrs.axis, rank_of(call))
    return p.unview(p.emit(call_like(call, [views], axis=axis)))


@rule("take")
def _take(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    """Convert a take of several elements along an axis."""
    source, index = call.args
    if call.attrs.axis is None or rank_of(index) != 1 or not p.has_view(source):
        return None
    axis = p.axis(call.attrs.axis, rank_of(source))
    return p.unview(p.emit(call_like(call, [p.view(source), index], axis=axis)))


@rule("split")
def _split(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    if not p.has_view(call.args[0]):
        return None
    axis = p.axis(call.attrs.axis, rank_of(call.args[0]))
    parts = p.emit(call_like(call, [p.view(call.args[0])], axis=axis))
    count = len(parts.ty.fields)
    return relax.Tuple([p.unview(p.emit(relax.TupleGetItem(parts, i))) for i in range(count)])


@rule("nn.pad")
def _pad(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    if not p.has_view(call.args[0]):
        return None
    width, rank = ints(call.attrs.pad_width), rank_of(call)
    pairs = [width[2 * i : 2 * i + 2] for i in range(rank)]
    moved = [amount for axis in p.to_last[rank] for amount in pairs[axis]]
    return p.unview(
        p.emit(call_like(call, [p.view(call.args[0]), *call.args[1:]], pad_width=moved))
    )


@rule("reshape")
def _reshape(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    source = call.args[0]
    if not p.has_view(source):
        return None
    before, after = shape_of(source), shape_of(call)
    if keeps_order(before, p.to_last[len(before)]):
        return relax.op.reshape(p.view(source), after)
    if p.to_last is OF_GROUPS and _regroups(before, after):
        shape = permute(after, p.to_last[len(after)])
        return p.unview(p.emit(relax.op.reshape(p.view(source), shape)))
    return None  # the elements change their order, so the model's order is needed


def _regroups(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Whether a reshape splits the channels of images into groups, or joins groups."""
    ranks = {len(before), len(after)}
    return ranks <= {4, 5} and (before[0], *before[-2:]) == (after[0], *after[-2:])


@rule("strided_slice")
def _strided_slice(p: ChannelsLast, call: relax.Call) -> relax.Expr | None:
    if not p.has_view(call.args[0]):
        return None
    axes = call.args[1]
    if not isinstance(axes, relax.Tuple):
        return None
    if not all(hasattr(field, "value") for field in axes.fields):
        return None
    rank = rank_of(call.args[0])
    moved = relax.Tuple([relax.prim_value(p.axis(f.value, rank)) for f in axes.fields])
    args = [p.view(call.args[0]), moved, *call.args[2:]]
    return p.unview(p.emit(relax.Call(call.op, args, call.attrs, call.ty_args)))
