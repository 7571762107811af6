"""``convoy.layer_norm_backward``: the gradient of a layer norm over the last axis, as one pass.

With x^ = (x - mean) rstd and g = dy gamma: dx = rstd (g - mean(g) - x^ mean(g x^)), means along the
last axis. What the gradients of gamma and beta need beside x and dy are results too.
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax import op

from ..graph.expr import attr_fields, dtype_of, shape_of
from .registration import NAMESPACE, make_call, register_op

BACKWARD = NAMESPACE + "layer_norm_backward"


def layer_norm_backward(
    dy: relax.Expr, x: relax.Expr, gamma: relax.Expr, epsilon: float = 1e-5
) -> relax.Call:
    """(dx, mean, rstd) of x (..., C): dx as x, the others (..., 1) in float32; gamma is (C,)."""
    return make_call("layer_norm_backward", [dy, x, gamma], epsilon=float(epsilon))


def _infer(call: relax.Call, _builder: relax.BlockBuilder | None = None) -> tvm.ir.Type:
    x = call.args[1]
    of_rows = relax.TensorType((*shape_of(x)[:-1], 1), "float32")
    return tvm.ir.TupleType([x.ty, of_rows, of_rows])


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """By other operators, in float32."""
    dtype = dtype_of(call.args[1])
    dy, x, gamma = (
        a if dtype_of(a) == "float32" else builder.emit(op.astype(a, "float32")) for a in call.args
    )

    def mean(expr: relax.Expr) -> relax.Expr:
        return builder.emit(op.mean(builder.emit(expr), [-1], keepdims=True))

    middle = builder.emit(op.mean(x, [-1], keepdims=True))
    centred = builder.emit(op.subtract(x, middle))
    epsilon = relax.const(float(attr_fields(call.attrs)["epsilon"]), "float32")
    shifted = builder.emit(op.add(mean(op.multiply(centred, centred)), epsilon))
    rstd = builder.emit(op.rsqrt(shifted))
    unit = builder.emit(op.multiply(centred, rstd))
    g = builder.emit(op.multiply(dy, gamma))
    along = builder.emit(op.multiply(unit, mean(op.multiply(g, unit))))
    kept = builder.emit(op.subtract(builder.emit(op.subtract(g, mean(g))), along))
    dx = builder.emit(op.multiply(rstd, kept))
    return relax.Tuple([dx if dtype == "float32" else op.astype(dx, dtype), middle, rstd])


register_op(
    "layer_norm_backward", "Gradient of a norm of rows.", _infer, _legalize, layer_norm_backward
)
