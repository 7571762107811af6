"""``convoy.relu_backward`` and ``convoy.sgd_update``: elementwise operators of a training step."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax, te, tirx

from ..errors import InvalidWorkload
from ..graph.expr import attr_fields, dtype_of, shape_of
from .registration import NAMESPACE, make_call, register_op

RELU_BACKWARD = NAMESPACE + "relu_backward"
SGD_UPDATE = NAMESPACE + "sgd_update"


def relu_backward(dy: relax.Expr, y: relax.Expr) -> relax.Call:
    """``dy`` where ``y > 0``, else 0, for y = relu(x). It reads the output, which the next operator
    keeps anyway, so that the input need not be kept."""
    return make_call("relu_backward", [dy, y])


def sgd_update(
    w: relax.Expr,
    velocity: relax.Expr,
    dw: relax.Expr,
    learning_rate: relax.Expr,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
) -> relax.Call:
    """(new w, new velocity) of stochastic gradient descent with momentum, as PyTorch has it:

    ``g = dw + weight_decay * w``, ``v = momentum * velocity + g``,
    ``w = w - learning_rate * (g + momentum * v if nesterov else v)``.

    ``w``, ``velocity`` and ``dw`` have one shape; ``learning_rate`` is a scalar tensor.
    Raises InvalidWorkload where shapes differ.
    """
    call = make_call(
        "sgd_update", [w, velocity, dw, learning_rate],
        momentum=float(momentum), weight_decay=float(weight_decay), nesterov=bool(nesterov),
    )  # fmt: skip
    _infer_update(call)
    return call


def _infer_relu(call: relax.Call, _builder: relax.BlockBuilder | None = None) -> tvm.ir.Type:
    return call.args[0].ty


def _infer_update(call: relax.Call, _builder: relax.BlockBuilder | None = None) -> tvm.ir.Type:
    w, velocity, dw, _ = call.args
    if not shape_of(w) == shape_of(velocity) == shape_of(dw):
        raise InvalidWorkload(
            f"sgd_update of {w.ty}, {velocity.ty} and {dw.ty}", "tensors of one shape"
        )
    return tvm.ir.TupleType([w.ty, velocity.ty])


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


def _legalize_update(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return builder.call_te(
        update_loops, *call.args, **attr_fields(call.attrs), primfunc_name_hint="sgd_update",
        primfunc_attrs={"op_pattern": 8},
    )  # fmt: skip


def sgd_step(
    w: tirx.Expr, velocity: tirx.Expr, dw: tirx.Expr, rate: tirx.Expr, momentum: float,
    weight_decay: float, nesterov: bool,
) -> tuple[tirx.Expr, tirx.Expr]:  # fmt: skip
    """(new w, new velocity) of one element, all in float32."""
    gradient = dw + tirx.const(float(weight_decay), "float32") * w if weight_decay else dw
    speed = tirx.const(float(momentum), "float32") * velocity + gradient if momentum else gradient
    step = gradient + tirx.const(float(momentum), "float32") * speed if nesterov else speed
    return w - rate * step, speed


def update_loops(w, velocity, dw, learning_rate, momentum, weight_decay, nesterov):  # type: ignore[no-untyped-def]
    """The update as loops, one result after the other."""

    def element(which: int) -> Callable[..., tirx.Expr]:
        dtype = str((w, velocity)[which].dtype)

        def value(*i):  # type: ignore[no-untyped-def]
            old, speed, gradient = (t(*i).astype("float32") for t in (w, velocity, dw))
            result = sgd_step(
                old, speed, gradient, learning_rate(), float(momentum), float(weight_decay),
                bool(nesterov),
            )  # fmt: skip
            return result[which].astype(dtype)

        return value

    return [te.compute(w.shape, element(i), name=("new_w", "new_velocity")[i]) for i in range(2)]


register_op("relu_backward", "Gradient of relu.", _infer_relu, _legalize_relu, relu_backward)
register_op(
    "sgd_update", "Gradient descent with momentum.", _infer_update, _legalize_update, sgd_update
)
