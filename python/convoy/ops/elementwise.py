"""``convoy.relu_backward``: the gradient of a rectifier."""

from __future__ import annotations

import tvm
from tvm import relax, te, tirx

from ..graph.expr import dtype_of
from .registration import NAMESPACE, make_call, register_op

RELU_BACKWARD = NAMESPACE + "relu_backward"


def relu_backward(dy: relax.Expr, y: relax.Expr) -> relax.Call:
    """``dy`` where ``y > 0``, else 0, for y = relu(x). It reads the output, which the next operator
    keeps anyway, so that the input need not be kept."""
    return make_call("relu_backward", [dy, y])


def _infer_relu(call: relax.Call, _builder: relax.BlockBuilder | None = None) -> tvm.ir.Type:
    return call.args[0].ty


def _legalize_relu(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    dtype = dtype_of(call)

    def masked(dy: te.Tensor, y: te.Tensor) -> te.Tensor:
        zero, none = tirx.const(0.0, dtype), tirx.const(0.0, str(y.dtype))
        return te.compute(
            dy.shape, lambda *i: tirx.Select(y(*i) > none, dy(*i), zero), name="masked"
        )

    return builder.call_te(
        masked, *call.args, primfunc_name_hint="relu_backward", primfunc_attrs={"op_pattern": 0}
    )


register_op("relu_backward", "Gradient of relu.", _infer_relu, _legalize_relu, relu_backward)
