"""Gathering, scattering, masks and permutations."""

from __future__ import annotations

from typing import Any

from convoy.relay.ast import Call, Expr
from convoy.relay.lazy import relax, topi
from convoy.relay.ops.arguments import as_tuple, make_call
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.shapes import broadcast, same_shape
from convoy.relay.types import Dim, TensorType, Type


@builder("take")
def take(
    data: Expr, indices: Expr, axis: int | None = None, batch_dims: int = 0, mode: str = "clip"
) -> Call:
    """Take slices along an axis.

    Args:
        indices: Integers of any shape.
        axis: The axis; None flattens the data first.
        batch_dims: The leading axes that data and indices share.
        mode: What to do with indices out of range: "clip", "wrap", or "fast" (undefined).
    """
    return make_call("take", data, indices, batch_dims=batch_dims, axis=axis, mode=mode)


@type_rule("take")
def infer_take(call: Inputs) -> Type:
    call.count(2)
    data, indices, attrs = call.tensor(0), call.tensor(1), call.attrs
    if attrs["mode"] not in ("clip", "wrap", "fast"):
        raise call.error(f"mode='{attrs['mode']}'", "'clip', 'wrap' or 'fast'")
    if attrs["axis"] is None:
        return TensorType(indices.shape, data.dtype)
    axis = call.axis(attrs["axis"], len(data.shape))
    batch = int(attrs["batch_dims"] or 0)
    batch = batch + len(indices.shape) if batch < 0 else batch
    if not 0 <= batch <= min(axis, len(indices.shape)):
        raise call.error(f"batch_dims={attrs['batch_dims']}", "at most axis")
    shape = (*data.shape[:axis], *indices.shape[batch:], *data.shape[axis + 1 :])
    return TensorType(shape, data.dtype)


@converter("take")
def convert_take(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    if int(attrs["batch_dims"] or 0):
        return op.te(
            topi.take,
            op.args[0],
            op.args[1],
            axis=int(attrs["axis"]),
            batch_dims=int(attrs["batch_dims"]),
            mode=attrs["mode"],
        )
    axis = attrs["axis"]
    data = op.args[0]
    if axis is None:
        data, axis = op.reshape(data, [-1]), 0
    return op.te(topi.take, data, op.args[1], axis=int(axis), mode=attrs["mode"])


@builder("gather")
def gather(data: Expr, axis: int, indices: Expr) -> Call:
    """Take single elements along an axis; data and indices have the same rank."""
    return make_call("gather", data, indices, axis=axis)


@type_rule("gather")
def infer_gather(call: Inputs) -> Type:
    call.count(2)
    data, indices = call.tensor(0), call.tensor(1, len(call.tensor(0).shape))
    call.axis(call.attrs.get_int("axis"), len(data.shape))
    return TensorType(indices.shape, data.dtype)


@converter("gather")
def convert_gather(op: OpCall) -> RelaxExpr:
    return relax.op.gather_elements(op.args[0], op.args[1], axis=op.attrs.get_int("axis"))


@builder("gather_nd")
def gather_nd(
    data: Expr, indices: Expr, batch_dims: int = 0, index_rank: int | None = None
) -> Call:
    """Take slices at coordinates.

    Args:
        indices: (m, ...): m coordinates along the first axis.
        batch_dims: The leading axes that data and indices share.
    """
    return make_call("gather_nd", data, indices, batch_dims=batch_dims, index_rank=index_rank)


@type_rule("gather_nd")
def infer_gather_nd(call: Inputs) -> Type:
    call.count(2)
    data, indices = call.tensor(0), call.tensor(1)
    batch = call.attrs.get_int("batch_dims")
    if not indices.shape or not isinstance(indices.shape[0], int):
        raise call.error(f"indices {indices}", "a known number of coordinates in front")
    used = batch + indices.shape[0]
    if used > len(data.shape):
        raise call.error(f"{indices.shape[0]} coordinates of {data}", "at most its dimensions")
    return TensorType((*indices.shape[1:], *data.shape[used:]), data.dtype)


@converter("gather_nd")
def convert_gather_nd(op: OpCall) -> RelaxExpr:
    batch = op.attrs.get_int("batch_dims")
    return op.te(topi.gather_nd, op.args[0], op.args[1], batch_dims=batch)


@builder("scatter_elements")
def scatter_elements(
    data: Expr, indices: Expr, updates: Expr, axis: int = 0, reduction: str = "update"
) -> Call:
    """Write updates at indices along an axis.

    Args:
        reduction: "update", "add", "mul", "mean", "min" or "max".
    """
    return make_call("scatter_elements", data, indices, updates, axis=axis, reduction=reduction)


@builder("scatter")
def scatter(data: Expr, indices: Expr, updates: Expr, axis: int = 0) -> Call:
    """Write updates at indices: the name of scatter_elements until TVM 0.11."""
    return scatter_elements(data, indices, updates, axis)


@builder("scatter_add")
def scatter_add(data: Expr, indices: Expr, updates: Expr, axis: int = 0) -> Call:
    """Add updates at indices: scatter_elements with this reduction until TVM 0.11."""
    return scatter_elements(data, indices, updates, axis, "add")


@builder("scatter_nd")
def scatter_nd(data: Expr, indices: Expr, updates: Expr, mode: str = "update") -> Call:
    """Write updates at coordinates, which are along the first axis of `indices`."""
    return make_call("scatter_nd", data, indices, updates, mode=mode)


@type_rule("scatter_elements", "scatter_nd")
def infer_scatter(call: Inputs) -> Type:
    call.count(3)
    data = call.tensor(0)
    if call.tensor(2).dtype != data.dtype:
        raise call.error(f"updates {call.tensor(2)} into {data}", "one dtype")
    if call.name == "scatter_elements":
        if not same_shape(call.tensor(1).shape, call.tensor(2).shape):
            raise call.error(f"{call.tensor(1)} and {call.tensor(2)}", "indices and updates alike")
        call.axis(call.attrs.get_int("axis"), len(data.shape))
    return data


@converter("scatter_elements")
def convert_scatter_elements(op: OpCall) -> RelaxExpr:
    reduction = op.attrs["reduction"]
    _, _, updates = (op.shape(position) for position in range(3))  # TVM takes minutes for Any
    if 0 in updates:  # TVM divides by the number of updates
        return op.args[0]
    return relax.op.scatter_elements(*op.args, op.attrs.get_int("axis"), reduction)


@converter("scatter_nd")
def convert_scatter_nd(op: OpCall) -> RelaxExpr:
    """Emit a scatter; Relax has the coordinates along the last axis.

    Updates beyond the last coordinate have no place and are left out.
    """
    _, places, rows = (op.shape(position) for position in range(3))  # TVM takes minutes for Any
    if 0 in places:
        return op.args[0]
    indices = op.permute(op.args[1], [*range(1, len(places)), 0])
    updates = op.args[2]
    if len(places) == 2 and rows[0] > places[1]:
        updates = relax.op.strided_slice(updates, [0], [0], [places[1]])
    return relax.op.scatter_nd(op.args[0], indices, updates, op.attrs["mode"])


@builder("adv_index")
def adv_index(inputs: Any) -> Call:
    """Index as numpy does: data[i, j, ...].

    Args:
        inputs: The data, then index tensors that broadcast together.
    """
    return make_call("adv_index", as_tuple(inputs))


@type_rule("adv_index")
def infer_adv_index(call: Inputs) -> Type:
    call.count(1)
    data, *indices = call.tensors(0)
    if not 1 <= len(indices) <= len(data.shape):
        raise call.error(f"{len(indices)} indices of {data}")
    shape: tuple[Dim, ...] | None = ()
    for index in indices:
        shape = broadcast(shape, index.shape) if shape is not None else None
    if shape is None:
        raise call.error(f"indices {', '.join(map(str, indices))}", "shapes that broadcast")
    return TensorType((*shape, *data.shape[len(indices) :]), data.dtype)


@converter("adv_index")
def convert_adv_index(op: OpCall) -> RelaxExpr:
    data, *indices = op.unpack(0)
    return op.te(topi.adv_index, data, indices)


@builder("sequence_mask")
def sequence_mask(data: Expr, valid_length: Expr, mask_value: float = 0, axis: int = 0) -> Call:
    """Replace elements past a valid length along an axis."""
    return make_call("sequence_mask", data, valid_length, mask_value=mask_value, axis=axis)


@type_rule("sequence_mask")
def infer_sequence_mask(call: Inputs) -> Type:
    call.count(2)
    return call.tensor(0, None)


@converter("sequence_mask")
def convert_sequence_mask(op: OpCall) -> RelaxExpr:
    return op.te(
        topi.sequence_mask,
        op.args[0],
        op.args[1],
        mask_value=op.attrs["mask_value"],
        axis=op.attrs.get_int("axis"),
    )


@builder("unravel_index")
def unravel_index(indices: Expr, shape: Expr) -> Call:
    """Convert flat indices to coordinates in a shape."""
    return make_call("unravel_index", indices, shape)


@type_rule("unravel_index")
def infer_unravel_index(call: Inputs) -> Type:
    call.count(2)
    indices, shape = call.tensor(0), call.tensor(1, 1)
    if len(indices.shape) > 1:
        raise call.error(f"argument 0 is {indices}", "a scalar or a vector")
    return TensorType((shape.shape[0], *indices.shape), indices.dtype)


@converter("unravel_index")
def convert_unravel_index(op: OpCall) -> RelaxExpr:
    return op.te(topi.unravel_index, *op.args)


@builder("invert_permutation")
def invert_permutation(data: Expr) -> Call:
    """Return the inverse permutation of a vector."""
    return make_call("invert_permutation", data)


@type_rule("invert_permutation")
def infer_invert_permutation(call: Inputs) -> Type:
    call.count(1)
    return call.tensor(0, 1)


@converter("invert_permutation")
def convert_invert_permutation(op: OpCall) -> RelaxExpr:
    """Emit an argsort."""
    return relax.op.argsort(op.args[0], 0, False, op.type(0).dtype)
