"""Broadcasting, its inverse, tiling and repeating."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay.ast import Call, Expr
from convoy.relay.builder import const
from convoy.relay.lazy import relax
from convoy.relay.ops.arguments import Sizes, known, listed, make_call
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr
from convoy.relay.ops.type_inputs import Inputs, constant_ints
from convoy.relay.shapes import broadcast, computed, same_shape, total_size
from convoy.relay.types import Dim, TensorType, Type


@builder("broadcast_to")
def broadcast_to(data: Expr, shape: Sizes) -> Call:
    """Broadcast to a shape, which may be computed."""
    shape = known(shape)
    if isinstance(shape, Expr):
        return make_call("dyn.broadcast_to", data, shape, shape=None)
    return make_call("broadcast_to", data, shape=listed(shape))


@builder("broadcast_to_like")
def broadcast_to_like(data: Expr, broadcast_type: Expr) -> Call:
    """Broadcast to the shape of another tensor."""
    return make_call("broadcast_to_like", data, broadcast_type)


@type_rule("broadcast_to")
def infer_broadcast_to(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    return TensorType(check_broadcast(call, data, call.shape("shape")), data.dtype)


@type_rule("broadcast_to_like")
def infer_broadcast_to_like(call: Inputs) -> Type:
    call.count(2)
    data, like = call.tensor(0), call.tensor(1)
    return TensorType(check_broadcast(call, data, like.shape), data.dtype)


def check_broadcast(call: Inputs, data: TensorType, shape: Sequence[Dim]) -> Sequence[Dim]:
    """Check that the data broadcasts to a shape; return the shape."""
    result = broadcast(data.shape, shape)
    if result is None or not same_shape(result, shape):
        raise call.error(
            f"{data} to {TensorType(shape, data.dtype)}", "a shape that it broadcasts to"
        )
    return shape


@converter("broadcast_to", "broadcast_to_like")
def convert_broadcast_to(op: OpCall) -> RelaxExpr:
    if not op.result.is_static and op.name == "broadcast_to_like":
        return relax.op.broadcast_to(op.args[0], op.args[1].ty.shape)
    return relax.op.broadcast_to(op.args[0], op.result_shape())


@builder("collapse_sum_like")
def collapse_sum_like(data: Expr, collapse_type: Expr) -> Call:
    """Sum broadcast axes, down to the shape of another tensor."""
    return make_call("collapse_sum_like", data, collapse_type)


@builder("collapse_sum_to")
def collapse_sum_to(data: Expr, shape: Any) -> Call:
    """Sum broadcast axes, down to a shape."""
    if isinstance(shape, (list, tuple)):
        shape = const(list(shape), "int32")
    return make_call("collapse_sum_to", data, shape)


@type_rule("collapse_sum_like")
def infer_collapse_sum_like(call: Inputs) -> Type:
    call.count(2)
    data, like = call.tensor(0), call.tensor(1)
    check_broadcast(call, like, data.shape)
    return TensorType(like.shape, data.dtype)


@type_rule("collapse_sum_to")
def infer_collapse_sum_to(call: Inputs) -> Type:
    call.count(2)
    shape = constant_ints(call, 1)
    data = call.tensor(0)
    check_broadcast(call, TensorType(shape, data.dtype), data.shape)
    return TensorType(shape, data.dtype)


@converter("collapse_sum_like", "collapse_sum_to")
def convert_collapse_sum(op: OpCall) -> RelaxExpr:
    return relax.op.collapse_sum_to(op.args[0], op.result_shape())


@builder("tile")
def tile(data: Expr, reps: Sizes) -> Call:
    """Repeat the tensor `reps` times along each axis."""
    reps = known(reps)
    if isinstance(reps, Expr):
        return make_call("dyn.tile", data, reps, reps=None)
    return make_call("tile", data, reps=listed(reps))


@type_rule("tile")
def infer_tile(call: Inputs) -> Type:
    call.count(1)
    data, reps = call.tensor(0), call.ints("reps")
    if any(r <= 0 for r in reps):
        raise call.error(f"reps={list(reps)}", "values over zero")
    n = max(len(reps), len(data.shape))
    shape = (1,) * (n - len(data.shape)) + data.shape
    times = (1,) * (n - len(reps)) + reps
    out = [computed(lambda n, times=r: n * times, d) for d, r in zip(shape, times, strict=False)]
    return TensorType(out, data.dtype)


@converter("tile")
def convert_tile(op: OpCall) -> RelaxExpr:
    return relax.op.tile(op.args[0], [int(r) for r in op.attrs["reps"]])


@builder("repeat")
def repeat(data: Expr, repeats: int, axis: int | None = None) -> Call:
    """Repeat each element along an axis; None flattens the data first."""
    return make_call("repeat", data, repeats=repeats, axis=axis)


@type_rule("repeat")
def infer_repeat(call: Inputs) -> Type:
    call.count(1)
    data, times = call.tensor(0), call.attrs["repeats"]
    if times is None or times < 1:
        raise call.error(f"repeats={times}", "at least 1")
    if call.attrs["axis"] is None:
        size = total_size(data.shape)
        return TensorType((computed(lambda n: n * times, size),), data.dtype)
    axis = call.axis(call.attrs["axis"], len(data.shape))
    shape = list(data.shape)
    size = shape[axis]
    shape[axis] = computed(lambda n: n * times, size)
    return TensorType(shape, data.dtype)


@converter("repeat")
def convert_repeat(op: OpCall) -> RelaxExpr:
    axis = op.attrs["axis"]
    times = int(op.attrs["repeats"])
    return relax.op.repeat(op.args[0], times, None if axis is None else int(axis))
