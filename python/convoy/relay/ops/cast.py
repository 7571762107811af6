"""Element types, and arithmetic on their bits."""

from __future__ import annotations

from convoy.relay.ast import Call, Expr
from convoy.relay.lazy import relax, topi
from convoy.relay.ops.arguments import make_call
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.types import TensorType, Type


@builder("cast")
def cast(data: Expr, dtype: str) -> Call:
    """Convert to another dtype."""
    return make_call("cast", data, dtype=dtype)


@type_rule("cast", "reinterpret")
def infer_cast(call: Inputs) -> Type:
    call.count(1)
    return TensorType(call.tensor(0).shape, call.attrs["dtype"])


@converter("cast")
def convert_cast(op: OpCall) -> RelaxExpr:
    return relax.op.astype(op.args[0], op.attrs["dtype"])


@converter("reinterpret")
def convert_reinterpret(op: OpCall) -> RelaxExpr:
    return op.te(topi.reinterpret, op.args[0], op.attrs["dtype"])


@builder("reinterpret")
def reinterpret(data: Expr, dtype: str) -> Call:
    """Reinterpret the bits as another dtype of the same width."""
    return make_call("reinterpret", data, dtype=dtype)


@builder("cast_like")
def cast_like(data: Expr, dtype_like: Expr) -> Call:
    """Convert to the dtype of another tensor."""
    return make_call("cast_like", data, dtype_like)


@type_rule("cast_like")
def infer_cast_like(call: Inputs) -> Type:
    call.count(2)
    return TensorType(call.tensor(0).shape, call.tensor(1).dtype)


@converter("cast_like")
def convert_cast_like(op: OpCall) -> RelaxExpr:
    return relax.op.astype(op.args[0], op.type(1).dtype)
