"""New tensors: fills, ranges, one-hot encodings, shapes as values."""

from __future__ import annotations

import numpy as np

from convoy.relay.ast import Call, Constant, Expr
from convoy.relay.builder import const
from convoy.relay.lazy import relax
from convoy.relay.ops.arguments import Sizes, known, listed, make_call
from convoy.relay.ops.registry import builder, converter, shape_arguments, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr, constant, is_const
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.types import Any as DynamicDim
from convoy.relay.types import Dim, TensorType, Type


@builder("full")
def full(fill_value: Expr, shape: Sizes = (), dtype: str = "") -> Call:
    """Fill a shape, which may be computed, with a scalar."""
    shape = known(shape)
    if isinstance(shape, Expr):
        return make_call("dyn.full", fill_value, shape, shape=None, dtype=dtype)
    return make_call("full", fill_value, shape=listed(shape), dtype=dtype)


@builder("full_like")
def full_like(data: Expr, fill_value: Expr) -> Call:
    """Fill the shape of another tensor with a scalar."""
    return make_call("full_like", data, fill_value)


@builder("zeros")
def zeros(shape: Sizes, dtype: str) -> Call:
    """Make a tensor of zeros; the shape may be computed."""
    return _filled("zeros", shape, dtype)


@builder("ones")
def ones(shape: Sizes, dtype: str) -> Call:
    """Make a tensor of ones; the shape may be computed."""
    return _filled("ones", shape, dtype)


def _filled(name: str, shape: Sizes, dtype: str) -> Call:
    shape = known(shape)
    if isinstance(shape, Expr):
        return make_call(f"dyn.{name}", shape, shape=None, dtype=dtype)
    return make_call(name, shape=listed(shape), dtype=dtype)


@builder("zeros_like")
def zeros_like(data: Expr) -> Call:
    """Make a tensor of zeros of the shape and dtype of another."""
    return make_call("zeros_like", data)


@builder("ones_like")
def ones_like(data: Expr) -> Call:
    """Make a tensor of ones of the shape and dtype of another."""
    return make_call("ones_like", data)


@type_rule("zeros", "ones")
def infer_filled(call: Inputs) -> Type:
    call.count(0)
    return TensorType(call.shape("shape"), call.attrs["dtype"] or "float32")


@type_rule("full")
def infer_full(call: Inputs) -> Type:
    call.count(1)
    shape, fill = call.shape("shape"), call.tensor(0)
    if fill.shape:
        raise call.error(f"a fill value of type {fill}", "a scalar")
    return TensorType(shape, call.attrs["dtype"] or fill.dtype)


@type_rule("zeros_like", "ones_like")
def infer_filled_like(call: Inputs) -> Type:
    call.count(1)
    return call.tensor(0)


@type_rule("full_like")
def infer_full_like(call: Inputs) -> Type:
    call.count(2)
    if call.tensor(1).shape:
        raise call.error(f"a fill value of type {call.tensor(1)}", "a scalar")
    return call.tensor(0)


@converter("zeros", "ones")
def convert_filled(op: OpCall) -> RelaxExpr:
    return getattr(relax.op, op.name)(op.result_shape(), op.result.dtype)


@converter("zeros_like", "ones_like")
def convert_filled_like(op: OpCall) -> RelaxExpr:
    return getattr(relax.op, op.name)(op.args[0])


@converter("full", "full_like")
def convert_full(op: OpCall) -> RelaxExpr:
    result: TensorType = op.result
    fill = op.args[0 if op.name == "full" else 1]
    if is_const(fill):
        fill = constant(fill.value.numpy().reshape(()), result.dtype)
    else:
        fill = op.cast(op.reshape(fill, ()), result.dtype)
    if op.name == "full_like" and not result.is_static:
        return relax.op.full_like(op.args[0], fill)
    return relax.op.full(op.result_shape(), fill, result.dtype)


@builder("arange")
def arange(
    start: Expr, stop: Expr | None = None, step: Expr | None = None, dtype: str = "float32"
) -> Call:
    """Make the numbers from `start` up to, not including, `stop`.

    Args:
        start, stop, step: Scalars; `arange(n)` starts at 0.
    """
    if stop is None:
        start, stop = const(0, dtype), start
    step = const(1, dtype) if step is None else step
    args = {"start": start, "stop": stop, "step": step}
    # A computed bound is an argument alone: as an attribute it would have no text.
    bounds = {name: arg if isinstance(arg, Constant) else None for name, arg in args.items()}
    return make_call("arange", *args.values(), dtype=dtype, **bounds)


shape_arguments("arange", 0, 1, 2)


@type_rule("arange")
def infer_arange(call: Inputs) -> Type:
    """Infer the length from constant bounds; others leave it dynamic."""
    call.count(3)
    dtype = call.attrs["dtype"]
    bounds = [
        a.value.item() for a in call.call.args if isinstance(a, Constant) and a.value.size == 1
    ]
    if len(bounds) < 3:
        return TensorType((DynamicDim(),), dtype)
    start, stop, step = bounds
    if step == 0:
        raise call.error("a step of 0", "another step")
    steps = (stop - start) / step
    if not abs(steps) < 2**40:
        raise call.error(f"{steps} elements", "fewer")
    return TensorType((max(0, int(-(-(stop - start) // step))),), dtype)


@converter("arange")
def convert_arange(op: OpCall) -> RelaxExpr:
    """Fold the range into a constant."""
    if not op.result.is_static or not all(is_const(a) for a in op.args):
        raise op.unsupported("bounds that are computed", "constants")
    start, _, step = (a.value.numpy().reshape(()).item() for a in op.args)
    count = op.result_shape()[0]
    return constant(start + step * np.arange(count), op.result.dtype)


@builder("one_hot")
def one_hot(
    indices: Expr, on_value: Expr, off_value: Expr, depth: int | Expr, axis: int, dtype: str
) -> Call:
    """Encode indices along a new axis.

    Args:
        indices: Integers from 0 to `depth - 1`.
        on_value, off_value: Scalars for the index and for the others.
        depth: The size of the new axis.
        axis: Its position; -1 is last.
        dtype: The dtype of the result.
    """
    depth = known(depth)
    if isinstance(depth, Expr):
        args = (indices, on_value, off_value, depth)
        return make_call("dyn.one_hot", *args, depth=0, axis=axis, dtype=dtype)
    return make_call("one_hot", indices, on_value, off_value, depth=depth, axis=axis, dtype=dtype)


@type_rule("one_hot")
def infer_one_hot(call: Inputs) -> Type:
    call.count(3)
    indices, attrs = call.tensor(0), call.attrs
    if attrs.get_int("depth") <= 0:
        raise call.error(f"depth={attrs['depth']}", "a value over zero")
    axis = call.axis(attrs.get_int("axis"), len(indices.shape) + 1)
    shape: tuple[Dim, ...] = (*indices.shape[:axis], attrs.get_int("depth"), *indices.shape[axis:])
    return TensorType(shape, attrs["dtype"])


@converter("one_hot")
def convert_one_hot(op: OpCall) -> RelaxExpr:
    attrs, indices = op.attrs, op.args[0]
    axis = attrs.get_int("axis") % (len(op.type(0).shape) + 1)
    depth, dtype = attrs.get_int("depth"), op.type(0).dtype
    spread = op.emit(relax.op.expand_dims(indices, axis))
    shape = [depth if i == axis else 1 for i in range(len(op.type(0).shape) + 1)]
    counter = op.const(np.arange(depth).reshape(shape), dtype)
    hit = op.emit(relax.op.equal(spread, counter))
    on, off = (op.cast(a, attrs["dtype"]) for a in op.args[1:])
    return relax.op.where(hit, on, off)


@builder("shape_of")
def shape_of(data: Expr, dtype: str = "int32") -> Call:
    """Return the shape as a vector."""
    return make_call("shape_of", data, dtype=dtype)


@type_rule("shape_of")
def infer_shape_of(call: Inputs) -> Type:
    call.count(1)
    return TensorType((len(call.tensor(0).shape),), call.attrs["dtype"] or "int32")


@converter("shape_of")
def convert_shape_of(op: OpCall) -> RelaxExpr:
    if not op.type(0).is_static:
        sizes = op.emit(relax.op.shape_to_tensor(op.emit(relax.op.shape_of(op.args[0]))))
        return op.cast(sizes, op.result.dtype)
    return constant(np.array(op.shape(0)), op.result.dtype)


@builder("ndarray_size")
def ndarray_size(data: Expr, dtype: str = "int32") -> Call:
    """Return the number of elements as a scalar."""
    return make_call("ndarray_size", data, dtype=dtype)


@type_rule("ndarray_size")
def infer_ndarray_size(call: Inputs) -> Type:
    call.count(1)
    call.tensor(0)
    return TensorType((), call.attrs["dtype"] or "int32")


@converter("ndarray_size")
def convert_ndarray_size(op: OpCall) -> RelaxExpr:
    return constant(np.array(int(np.prod(op.shape(0), dtype=np.int64))), op.result.dtype)
