"""Triangles and diagonals of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay.ast import Call, Expr
from convoy.relay.builder import const
from convoy.relay.lazy import relax, te, tirx, topi
from convoy.relay.ops.arguments import make_call
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr, is_const
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.types import Type


@builder("trilu")
def trilu(data: Expr, k: Any, upper: bool = True) -> Call:
    """Keep the upper (or lower) triangle of matrices.

    Args:
        k: The diagonal where the triangle begins; a number or a scalar expression.
        upper: Keep the upper triangle.
    """
    return make_call("trilu", data, k if isinstance(k, Expr) else const(k, "int32"), upper=upper)


@builder("matrix_set_diag")
def matrix_set_diag(
    data: Expr, diagonal: Expr, k: int | Sequence[int] = 0, align: str = "RIGHT_LEFT"
) -> Call:
    """Replace diagonals of matrices.

    Args:
        diagonal: The new diagonals.
        k: The diagonal, or the first and the last one.
        align: How shorter diagonals are aligned, for those above and those below the main one.
    """
    low, high = (k, k) if isinstance(k, int) else (k[0], k[-1])
    above, _, below = align.partition("_")
    attrs = {"k1": low, "k2": high, "super_diag_right_align": above == "RIGHT"}
    return make_call(
        "matrix_set_diag", data, diagonal, **attrs, sub_diag_right_align=below == "RIGHT"
    )


@type_rule("trilu", "matrix_set_diag")
def infer_data(call: Inputs) -> Type:
    call.count(2)
    return call.tensor(0)


@converter("trilu")
def convert_trilu(op: OpCall) -> RelaxExpr:
    if not is_const(op.args[1]):
        upper = bool(op.attrs["upper"])
        return op.te(lambda x, k: _triangle(x, k, upper), op.args[0], op.reshape(op.args[1], ()))
    k = int(op.args[1].value.numpy().reshape(()))
    return (relax.op.triu if op.attrs["upper"] else relax.op.tril)(op.args[0], k)


def _triangle(x, k, upper):  # type: ignore[no-untyped-def]
    """Keep the triangle of a te.Tensor that begins at the diagonal of another one."""

    def at(*i):  # type: ignore[no-untyped-def]
        distance = i[-1].astype("int64") - i[-2].astype("int64") - k().astype("int64")
        kept = distance >= 0 if upper else distance <= 0
        return tirx.Select(kept, x(*i), tirx.const(0, x.dtype))

    return te.compute(x.shape, at)


@converter("matrix_set_diag")
def convert_matrix_set_diag(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    sides = (attrs["super_diag_right_align"], attrs["sub_diag_right_align"])
    align = "_".join("RIGHT" if side else "LEFT" for side in sides)
    k = (int(attrs["k1"]), int(attrs["k2"]))
    return op.te(topi.matrix_set_diag, op.args[0], op.args[1], k, align)
