"""Matrix products."""

from __future__ import annotations

from convoy.relay.ast import Call, Expr
from convoy.relay.lazy import relax
from convoy.relay.ops.arguments import make_call
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.shapes import broadcast_dim, same_dim
from convoy.relay.types import Dim, TensorType, Type


@builder("nn.dense")
def dense(data: Expr, weight: Expr, units: int | None = None, out_dtype: str = "") -> Call:
    """Multiply by a transposed weight.

    Args:
        data: (..., k).
        weight: (units, k).
        units: The weight's rows; None takes them from its type.
        out_dtype: The result's dtype; empty for that of the data.

    Returns:
        (..., units).
    """
    return make_call("nn.dense", data, weight, units=units, out_dtype=out_dtype)


@type_rule("nn.dense")
def infer_dense(call: Inputs) -> Type:
    return _infer_matmul(call, False, True)


@converter("nn.dense")
def convert_dense(op: OpCall) -> RelaxExpr:
    """Emit a matmul; a weight that is not constant keeps its transpose, which backends match."""
    weight = op.permute(op.args[1], (1, 0))
    return relax.op.matmul(op.args[0], weight, out_dtype=op.result.dtype)


@builder("nn.matmul")
def matmul(
    tensor_a: Expr,
    tensor_b: Expr,
    units: int | None = None,
    out_dtype: str = "",
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Call:
    """Multiply matrices, each optionally transposed; see `dense` for `units` and `out_dtype`."""
    return make_call(
        "nn.matmul",
        tensor_a,
        tensor_b,
        units=units,
        out_dtype=out_dtype,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
    )


@type_rule("nn.matmul")
def infer_matmul(call: Inputs) -> Type:
    return _infer_matmul(call, call.attrs["transpose_a"], call.attrs["transpose_b"])


def _infer_matmul(call: Inputs, transpose_a: bool, transpose_b: bool) -> Type:
    call.count(2)
    units = call.attrs["units"]
    a = call.tensor(0)
    if not a.shape:
        raise call.error("a scalar as argument 0", "a tensor")
    if transpose_a and len(a.shape) < 2:
        raise call.error(f"transpose_a with {a}", "a matrix")
    inner = a.shape[-2] if transpose_a else a.shape[-1]
    rows = (*a.shape[:-2], a.shape[-1]) if transpose_a else a.shape[:-1]
    if units is not None:
        b = call.known(1)
        shape: tuple[Dim, ...] = (units, inner) if transpose_b else (inner, units)
        call.expect(1, TensorType(shape, b.dtype if b else a.dtype))
        columns: Dim = units
    else:
        b = call.tensor(1, 2)
        if not same_dim(b.shape[1 if transpose_b else 0], inner):
            raise call.error(f"{a} times {b}", f"{inner} as the reduced size of both")
        columns = b.shape[0 if transpose_b else 1]
    return TensorType((*rows, columns), call.out_dtype(a.dtype))


@converter("nn.matmul")
def convert_matmul(op: OpCall) -> RelaxExpr:
    a, b = op.args
    if op.attrs["transpose_a"]:
        ndim = len(op.type(0).shape)
        a = op.permute(a, (*range(ndim - 2), ndim - 1, ndim - 2))
    if op.attrs["transpose_b"]:
        b = op.permute(b, (1, 0))
    return relax.op.matmul(a, b, out_dtype=op.result.dtype)


@builder("nn.contrib_dense_pack")
def contrib_dense_pack(
    data: Expr,
    weight: Expr,
    weight_layout: str = "NC",
    units: int | None = None,
    out_dtype: str = "",
) -> Call:
    """Multiply by a weight (units / b, k, b), whose rows are packed; see `dense`."""
    del weight_layout  # the shape of the weight has it
    return make_call("nn.contrib_dense_pack", data, weight, units=units, out_dtype=out_dtype)


@type_rule("nn.contrib_dense_pack")
def infer_dense_pack(call: Inputs) -> Type:
    call.count(2)
    data, weight = call.tensor(0, 2), call.tensor(1)
    if not weight.is_static or len(weight.shape) not in (3, 4):
        raise call.error(f"argument 1 is {weight}", "a packed weight of 3 or 4 dimensions")
    blocks, inner, rows, *lanes = weight.concrete_shape
    if not same_dim(data.shape[1], inner * (lanes[0] if lanes else 1)):
        raise call.error(f"{data} times {weight}", "equal reduced sizes")
    return TensorType((data.shape[0], blocks * rows), call.out_dtype(data.dtype))


@converter("nn.contrib_dense_pack")
def convert_dense_pack(op: OpCall) -> RelaxExpr:
    """Unpack the weight to (k, units)."""
    blocks, inner, rows, *lanes = op.shape(1)
    axes = (1, 3, 0, 2) if lanes else (1, 0, 2)
    weight = op.permute(op.args[1], axes)
    weight = op.reshape(weight, (inner * (lanes[0] if lanes else 1), blocks * rows))
    return relax.op.matmul(op.args[0], weight, out_dtype=op.result.dtype)


@builder("nn.batch_matmul")
def batch_matmul(
    tensor_a: Expr,
    tensor_b: Expr,
    out_dtype: str = "",
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> Call:
    """Multiply two batches of matrices.

    Args:
        tensor_a: (b, m, k), or (b, k, m) with `transpose_a`.
        tensor_b: (b, n, k), or (b, k, n) without `transpose_b`. A batch of 1 broadcasts.

    Returns:
        (b, m, n).
    """
    return make_call(
        "nn.batch_matmul",
        tensor_a,
        tensor_b,
        out_dtype=out_dtype,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
    )


@type_rule("nn.batch_matmul")
def infer_batch_matmul(call: Inputs) -> Type:
    call.count(2)
    x, y = call.tensor(0, 3), call.tensor(1, 3)
    m, k = (2, 1) if call.attrs["transpose_a"] else (1, 2)
    n, k2 = (1, 2) if call.attrs["transpose_b"] else (2, 1)
    batch = broadcast_dim(x.shape[0], y.shape[0])
    if batch is None or not same_dim(x.shape[k], y.shape[k2]):
        raise call.error(f"{x} times {y}", "equal batches and equal reduced sizes")
    return TensorType((batch, x.shape[m], y.shape[n]), call.out_dtype(x.dtype))


@converter("nn.batch_matmul")
def convert_batch_matmul(op: OpCall) -> RelaxExpr:
    a, b = op.args
    if op.attrs["transpose_a"]:
        a = op.permute(a, (0, 2, 1))
    if op.attrs["transpose_b"]:
        b = op.permute(b, (0, 2, 1))
    b = op.match_dynamic(a, b, axes=1)
    return relax.op.matmul(a, b, out_dtype=op.result.dtype)
