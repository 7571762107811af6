"""Operators that work element by element."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax, topi

from convoy.relay.convert.context import OpCall, RelaxExpr, converter

_UNARY = (  # noqa: SIM905
    "abs acos acosh asin asinh atan atanh ceil cos cosh erf exp floor log negative round"
    " rsqrt sigmoid sign sin sinh sqrt tan tanh trunc bitwise_not logical_not isnan isinf"
    " isfinite"
).split()
_FAST = {"fast_erf": "erf", "fast_exp": "exp", "fast_tanh": "tanh"}
_BINARY = (  # noqa: SIM905
    "add subtract multiply floor_divide floor_mod power maximum minimum logical_and"
    " logical_or logical_xor bitwise_and bitwise_or bitwise_xor left_shift right_shift equal"
    " not_equal less less_equal greater greater_equal"
).split()
_IDENTITY = (  # noqa: SIM905
    "copy annotation.stop_fusion annotation.compiler_begin annotation.compiler_end"
    " annotation.checkpoint on_device device_copy"
).split()


@converter(*_UNARY, *_FAST)
def unary(op: OpCall) -> RelaxExpr:
    return getattr(relax.op, _FAST.get(op.name, op.name))(op.args[0])


@converter(*_BINARY)
def binary(op: OpCall) -> RelaxExpr:
    a, b = op.args
    return getattr(relax.op, op.name)(a, op.meet(a, b))


@converter("divide", "trunc_divide")
def divide(op: OpCall) -> RelaxExpr:
    """Integers divide towards zero, as in C."""
    if op.type(0).dtype.startswith("float") or op.type(0).dtype == "bfloat16":
        quotient = relax.op.divide(op.args[0], op.meet(*op.args))
        return quotient if op.name == "divide" else relax.op.trunc(op.emit(quotient))
    return op.te(_truncated_quotient, op.args[0], op.args[1])


@converter("mod", "trunc_mod")
def mod(op: OpCall) -> RelaxExpr:
    """The remainder has the sign of the dividend, as in C."""
    return op.te(_truncated_remainder, op.args[0], op.args[1])


def _truncated_quotient(a, b):  # type: ignore[no-untyped-def]
    from tvm import tirx

    return _broadcast(a, b, tirx.truncdiv)


def _truncated_remainder(a, b):  # type: ignore[no-untyped-def]
    from tvm import tirx

    if "float" in str(a.dtype):
        return _broadcast(a, b, lambda x, y: x - y * tirx.trunc(x / y))
    return _broadcast(a, b, tirx.truncmod)


def _broadcast(a, b, function):  # type: ignore[no-untyped-def]
    from tvm import te

    shape = topi.broadcast_shape(a.shape, b.shape) if hasattr(topi, "broadcast_shape") else None
    if shape is None:
        n = max(len(a.shape), len(b.shape))
        pad = [[1] * (n - len(t.shape)) + list(t.shape) for t in (a, b)]
        shape = [y if isinstance(x, int) or _is_one(x) else x for x, y in zip(*pad, strict=False)]
    a, b = topi.broadcast_to(a, shape), topi.broadcast_to(b, shape)
    return te.compute(shape, lambda *i: function(a(*i), b(*i)))


def _is_one(size) -> bool:  # type: ignore[no-untyped-def]
    return getattr(size, "value", size) == 1


@converter(*_IDENTITY)
def identity(op: OpCall) -> RelaxExpr:
    """Annotations of Relay's own partitioning; placement is decided anew."""
    return op.args[0]


@converter("log2", "log10")
def log_of_base(op: OpCall) -> RelaxExpr:
    base = 2 if op.name == "log2" else 10
    scale = op.const(1 / math.log(base), op.type(0).dtype)
    return relax.op.multiply(op.emit(relax.op.log(op.args[0])), scale)


@converter("nn.relu")
def relu(op: OpCall) -> RelaxExpr:
    return relax.op.nn.relu(op.args[0])


@converter("nn.leaky_relu")
def leaky_relu(op: OpCall) -> RelaxExpr:
    return relax.op.nn.leakyrelu(op.args[0], alpha=op.attrs["alpha"])


@converter("clip")
def clip(op: OpCall) -> RelaxExpr:
    """Bounds beyond what an integer type holds are cut to what it holds."""
    low, high = op.attrs["a_min"], op.attrs["a_max"]
    dtype = op.type(0).dtype
    if "int" in dtype:
        info = np.iinfo(dtype)
        low, high = int(max(low, info.min)), int(min(high, info.max))
    return relax.op.clip(op.args[0], low, high)


@converter("cast")
def cast(op: OpCall) -> RelaxExpr:
    return relax.op.astype(op.args[0], op.attrs["dtype"])


@converter("cast_like")
def cast_like(op: OpCall) -> RelaxExpr:
    return relax.op.astype(op.args[0], op.type(1).dtype)


@converter("where")
def where(op: OpCall) -> RelaxExpr:
    condition = op.args[0]
    if op.type(0).dtype != "bool":
        condition = op.cast(condition, "bool")
    return relax.op.where(condition, op.args[1], op.args[2])
