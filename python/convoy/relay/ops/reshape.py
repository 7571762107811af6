"""Changing shapes without moving elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay.ast import Call, Expr
from convoy.relay.lazy import relax
from convoy.relay.ops.arguments import Axes, Sizes, axes_of, known, listed, make_call
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.shapes import computed, same_dim, total_size
from convoy.relay.types import Any as DynamicDim
from convoy.relay.types import Dim, TensorType, Type


@builder("reshape")
def reshape(data: Expr, newshape: Sizes, allowzero: bool = False) -> Call:
    """Change the shape.

    Args:
        newshape: The sizes, which may be computed. 0 copies a dimension (unless `allowzero`), -1 is
            inferred, -2 copies all that remain, -3 merges two, -4 splits one into the two values
            that follow.
        allowzero: Read 0 as a size.
    """
    newshape = known(newshape)
    if isinstance(newshape, Expr):
        return make_call("dyn.reshape", data, newshape, newshape=None, allowzero=allowzero)
    return make_call("reshape", data, newshape=listed(newshape), allowzero=allowzero)


@builder("reverse_reshape")
def reverse_reshape(data: Expr, newshape: int | Sequence[int]) -> Call:
    """Change the shape as `reshape` does, reading `newshape` from the right."""
    shape = (newshape,) if isinstance(newshape, int) else tuple(newshape)
    return make_call("contrib_reverse_reshape", data, newshape=shape)


@builder("reshape_like")
def reshape_like(
    data: Expr,
    shape_like: Expr,
    lhs_begin: int = 0,
    lhs_end: int | None = None,
    rhs_begin: int = 0,
    rhs_end: int | None = None,
) -> Call:
    """Replace axes lhs_begin to lhs_end by axes rhs_begin to rhs_end of another tensor."""
    attrs = {"lhs_begin": lhs_begin, "lhs_end": lhs_end}
    return make_call(
        "reshape_like", data, shape_like, rhs_begin=rhs_begin, rhs_end=rhs_end, **attrs
    )


@type_rule("reshape")
def infer_reshape(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    values = call.ints("newshape")
    try:
        return TensorType(reshaped(data.shape, values, call.attrs["allowzero"]), data.dtype)
    except ValueError as bad:
        raise call.error(f"newshape={list(values)} of {data}: {bad}") from None


@type_rule("contrib_reverse_reshape")
def infer_reverse_reshape(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    values = call.ints("newshape")
    try:
        shape = reshaped(data.shape[::-1], values[::-1], False)
    except ValueError as bad:
        raise call.error(f"newshape={list(values)} of {data}: {bad}") from None
    return TensorType(shape[::-1], data.dtype)


@type_rule("reshape_like")
def infer_reshape_like(call: Inputs) -> Type:
    call.count(2)
    data, like = call.tensor(0), call.tensor(1)
    left = _range(call, "lhs", len(data.shape))
    right = _range(call, "rhs", len(like.shape))
    shape = (*data.shape[: left[0]], *like.shape[slice(*right)], *data.shape[left[1] :])
    if not same_dim(total_size(data.shape), total_size(shape)):
        raise call.error(f"{data} as {TensorType(shape, data.dtype)}", "as many elements")
    return TensorType(shape, data.dtype)


def _range(call: Inputs, side: str, ndim: int) -> tuple[int, int]:
    begin, end = call.attrs.get_int(f"{side}_begin"), call.attrs[f"{side}_end"]
    end = ndim if end is None else int(end)
    return (begin + ndim if begin < 0 else begin), (end + ndim if end < 0 else end)


@converter("reshape", "contrib_reverse_reshape", "reshape_like")
def convert_reshape(op: OpCall) -> RelaxExpr:
    if op.result.is_static:
        return op.reshape(op.args[0], op.result_shape())
    if op.name == "reshape_like":
        if op.attrs.get_int("lhs_begin") or op.attrs["lhs_end"] is not None:
            op.result_shape()  # raises
        return relax.op.reshape(op.args[0], op.args[1].ty.shape)
    values = [int(v) for v in op.attrs["newshape"]]
    if op.name != "reshape" or -4 in values or (0 in values and op.attrs["allowzero"]):
        op.result_shape()  # raises
    return relax.op.reshape(op.args[0], _sizes(op, values))


def _sizes(op: OpCall, values: list[int]) -> list[Any]:
    """Return Relax sizes where some are dynamic.

    0 keeps one, -3 multiplies two, -2 keeps the rest, -1 is left to Relax.
    """
    shape = op.args[0].ty.shape
    if shape is None or getattr(shape, "values", None) is None:
        raise op.unsupported("a shape of which nothing is known", "known sizes, but for some")
    rest = list(shape.values)
    sizes: list[Any] = []
    for value in values:
        if value == -2:
            sizes, rest = sizes + rest, []
        elif value == -3:
            sizes.append(rest.pop(0) * rest.pop(0))
        else:
            sizes.append(rest[0] if value == 0 else value)
            rest = rest[1:]
    return sizes


@builder("nn.batch_flatten")
def batch_flatten(data: Expr) -> Call:
    """Merge all axes after the first."""
    return make_call("nn.batch_flatten", data)


@type_rule("nn.batch_flatten")
def infer_batch_flatten(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    if not data.shape:
        raise call.error("a scalar", "a tensor")
    rest: Dim = 1
    for size in data.shape[1:]:
        rest = computed(lambda a, b: a * b, rest, size)
    return TensorType((data.shape[0], rest), data.dtype)


@converter("nn.batch_flatten")
def convert_batch_flatten(op: OpCall) -> RelaxExpr:
    return relax.op.nn.batch_flatten(op.args[0])


@builder("squeeze")
def squeeze(data: Expr, axis: Axes | Expr = None) -> Call:
    """Remove axes of size 1: all, or those given."""
    axis = known(axis)
    if isinstance(axis, Expr):
        return make_call("dyn.squeeze", data, axis, axis=None)
    return make_call("squeeze", data, axis=axes_of(axis))


@type_rule("squeeze")
def infer_squeeze(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    given = call.attrs["axis"]
    if given is None:
        return TensorType([d for d in data.shape if d != 1], data.dtype)
    axes = [call.axis(a, len(data.shape)) for a in call.ints("axis")]
    for axis in axes:
        if not same_dim(data.shape[axis], 1):
            raise call.error(f"axis {axis} of {data}", "an axis of size 1")
    return TensorType([d for i, d in enumerate(data.shape) if i not in axes], data.dtype)


@converter("squeeze")
def convert_squeeze(op: OpCall) -> RelaxExpr:
    given = op.attrs["axis"]
    return relax.op.squeeze(op.args[0], None if given is None else [int(a) for a in given])


@builder("expand_dims")
def expand_dims(data: Expr, axis: int | Expr, num_newaxis: int = 1) -> Call:
    """Insert axes of size 1 before an axis."""
    axis = known(axis)
    if isinstance(axis, Expr):
        return make_call("dyn.expand_dims", data, axis, num_newaxis=num_newaxis)
    return make_call("expand_dims", data, axis=axis, num_newaxis=num_newaxis)


@type_rule("expand_dims")
def infer_expand_dims(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    axis, count = call.attrs.get_int("axis"), call.attrs.get_int("num_newaxis")
    ndim = len(data.shape)
    if not -ndim - 1 <= axis <= ndim or not 0 <= count <= 64:
        raise call.error(f"axis={axis}, num_newaxis={count} of {data}")
    at = axis + ndim + 1 if axis < 0 else axis
    return TensorType((*data.shape[:at], *(1,) * count, *data.shape[at:]), data.dtype)


@converter("expand_dims")
def convert_expand_dims(op: OpCall) -> RelaxExpr:
    axis, count = op.attrs.get_int("axis"), op.attrs.get_int("num_newaxis")
    if count == 0:
        return op.args[0]
    first = axis + len(op.type(0).shape) + 1 if axis < 0 else axis
    return relax.op.expand_dims(op.args[0], list(range(first, first + count)))


def reshaped(shape: Sequence[Dim], newshape: Sequence[int], allowzero: bool) -> tuple[Dim, ...]:
    """Return the shape that `newshape` describes; see `reshape`.

    Raises:
        ValueError: Values that do not fit the shape; the message explains.
    """
    out: list[Dim] = []
    at, i, unknown = 0, 0, -1

    def take() -> Dim:
        nonlocal at
        if at >= len(shape):
            raise ValueError("it copies more dimensions than there are")
        at += 1
        return shape[at - 1]

    while i < len(newshape):
        value = newshape[i]
        if value > 0 or (value == 0 and allowzero):
            out.append(value)
            at += 1
        elif value == 0:
            out.append(take())
        elif value == -1:
            if unknown >= 0:
                raise ValueError("-1 may stand once")
            unknown = len(out)
            out.append(1)
            at += 1
        elif value == -2:
            out.extend(shape[at:])
            at = len(shape)
        elif value == -3:
            first, second = take(), take()
            out.append(computed(lambda a, b: a * b, first, second))
        elif value == -4:
            out.extend(_split(take(), newshape[i + 1 : i + 3]))
            i += 2
        else:
            raise ValueError(f"{value} has no meaning")
        i += 1
    return _complete(shape, out, unknown)


def _split(size: Dim, parts: Sequence[int]) -> list[Dim]:
    if len(parts) != 2 or min(parts) < -1 or 0 in parts or max(parts) < 1:
        raise ValueError("-4 is followed by two sizes, of which one may be -1")
    if not isinstance(size, int):
        return [DynamicDim() if p == -1 else p for p in parts]
    known = parts[1] if parts[0] == -1 else parts[0]
    other = size // known
    if size % known or parts[0 if known == parts[1] else 1] not in (-1, other):
        raise ValueError(f"{size} does not split into {list(parts)}")
    return [other if p == -1 else p for p in parts]


def _complete(shape: Sequence[Dim], out: list[Dim], unknown: int) -> tuple[Dim, ...]:
    """Fill in the inferred dimension and check the number of elements."""
    total, rest = total_size(shape), total_size(out)
    if not isinstance(total, int) or not isinstance(rest, int):
        if unknown >= 0:
            out[unknown] = computed(lambda n, k: n // k, total, rest)
        return tuple(out)
    if unknown >= 0:
        if rest == 0 or total % rest:
            raise ValueError(f"{total} elements do not divide by {rest}")
        out[unknown] = total // rest
    elif total != rest:
        raise ValueError(f"{total} elements do not fill {rest}")
    return tuple(out)
