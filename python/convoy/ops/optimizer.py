"""``convoy.optimizer_update``: one step of an optimizer for one parameter, elementwise.

Its arguments are the parameter, its gradient, the optimizer's slots for it (tensors of its shape)
and a vector of float32 that all parameters share: learning rates, corrections, a factor of the
gradients. Attributes that name such a scalar are its index there. All arithmetic is in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
from tvm import relax, te, tirx

from ..errors import InvalidWorkload
from ..graph.expr import attr_fields, shape_of
from .registration import NAMESPACE, make_call, register_op

UPDATE = NAMESPACE + "optimizer_update"
SQUARED_NORM = NAMESPACE + "squared_norm"

Values = Sequence[tirx.Expr]


def optimizer_update(
    w: relax.Expr,
    dw: relax.Expr,
    slots: Sequence[relax.Expr],
    scalars: relax.Expr,
    rule: str,
    **attributes: float,
) -> relax.Call:
    """(new w, *new slots) by a rule of ``RULES``, of which ``attributes`` are arguments.

    Besides those, ``scale`` is the index of a factor of the gradient, and ``applies`` that of a
    number that is zero where everything stays as it is; -1 for neither.
    Raises InvalidWorkload where shapes differ.
    """
    call = make_call("optimizer_update", [w, dw, *slots, scalars], rule=rule, **attributes)
    _infer(call)
    return call


def element(values: Values, scalars: Values, attributes: Mapping[str, Any]) -> list[tirx.Expr]:
    """New values of one element of (w, dw, *slots), without dw."""
    options = dict(attributes)
    rule, scale, applies = (options.pop(name) for name in ("rule", "scale", "applies"))
    w, dw, *slots = values
    if scale >= 0:
        dw = dw * scalars[scale]
    new = RULES[rule](w, dw, slots, scalars, **options)
    if applies < 0:
        return new
    return [
        tirx.Select(scalars[applies] != _const(0.0), value, old)
        for value, old in zip(new, [w, *slots], strict=True)
    ]


def _sgd(
    w: tirx.Expr, dw: tirx.Expr, slots: Values, scalars: Values,
    rate: int, momentum: float, weight_decay: float, nesterov: bool,
) -> list[tirx.Expr]:  # fmt: skip
    """``g = dw + weight_decay w``, ``v = momentum v + g``,
    ``w = w - rate (g + momentum v if nesterov else v)``."""
    g = dw + _const(weight_decay) * w if weight_decay else dw
    if not slots:
        return [w - scalars[rate] * g]
    v = _const(momentum) * slots[0] + g
    return [w - scalars[rate] * (g + _const(momentum) * v if nesterov else v), v]


def _adam(
    w: tirx.Expr, dw: tirx.Expr, slots: Values, scalars: Values,
    rate: int, beta1: float, beta2: float, epsilon: float, weight_decay: float, decoupled: bool,
    corrections: int,
) -> list[tirx.Expr]:  # fmt: skip
    """Adam (Kingma and Ba 2015); ``decoupled`` decay is AdamW (Loshchilov and Hutter 2019).

    The scalars from ``corrections`` on are 1 / (1 - beta1^t) and 1 / sqrt(1 - beta2^t).
    """
    step = scalars[rate]
    if weight_decay and decoupled:
        w = w - step * _const(weight_decay) * w
    elif weight_decay:
        dw = dw + _const(weight_decay) * w
    m = _const(beta1) * slots[0] + _const(1 - beta1) * dw
    v = _const(beta2) * slots[1] + _const(1 - beta2) * dw * dw
    root = tirx.sqrt(v) * scalars[corrections + 1] + _const(epsilon)
    return [w - step * scalars[corrections] * m / root, m, v]


#: How a parameter changes, by name: (w, dw, slots, scalars, attributes...) -> (w, *slots).
RULES: dict[str, Callable[..., list[tirx.Expr]]] = {"sgd": _sgd, "adam": _adam}


def _const(value: float) -> tirx.Expr:
    return tirx.const(float(value), "float32")


def _infer(call: relax.Call, _builder: relax.BlockBuilder | None = None) -> tvm.ir.Type:
    w, dw, *slots, _ = call.args
    if any(shape_of(other) != shape_of(w) for other in (dw, *slots)):
        types = ", ".join(str(arg.ty) for arg in call.args[:-1])
        raise InvalidWorkload(f"optimizer_update of {types}", "tensors of one shape")
    return tvm.ir.TupleType([w.ty, *(slot.ty for slot in slots)])


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    made = builder.call_te(
        _loops, list(call.args), **attr_fields(call.attrs), primfunc_name_hint="optimizer_update",
        primfunc_attrs={"op_pattern": 8},
    )  # fmt: skip
    return made if len(call.args) > 3 else relax.Tuple([builder.emit(made)])


def _loops(tensors: list[te.Tensor], **attributes: Any) -> list[te.Tensor]:
    """The update as loops, one result after the other."""
    *read, scalars = tensors
    written = [read[0], *read[2:]]

    def result(which: int) -> te.Tensor:
        def value(*i: tirx.Var) -> tirx.Expr:
            values = [tensor(*i).astype("float32") for tensor in read]
            shared = [scalars(k) for k in range(int(scalars.shape[0]))]
            return element(values, shared, attributes)[which].astype(written[which].dtype)

        return te.compute(read[0].shape, value, name=f"new_{which}")

    return [result(which) for which in range(len(written))]


def adam_corrections(count: relax.Expr, beta1: float, beta2: float) -> relax.Call:
    """1 / (1 - beta1^t) and 1 / sqrt(1 - beta2^t) for t = count + 1, as (2,) float32 by way of
    float64: in float32 nothing is left of 1 - beta2^t in the first steps."""
    return make_call("adam_corrections", [count], beta1=float(beta1), beta2=float(beta2))


def _infer_corrections(call: relax.Call, _builder: relax.BlockBuilder | None = None) -> tvm.ir.Type:
    return relax.TensorType((2,), "float32")


def _legalize_corrections(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    attributes = attr_fields(call.attrs)

    def loops(count: te.Tensor) -> te.Tensor:
        def value(i: tirx.Var) -> tirx.Expr:
            one = tirx.const(1.0, "float64")
            t = count().astype("float64") + one
            first, second = (
                one - tirx.exp(t * tirx.const(math.log(beta), "float64")) if beta else one
                for beta in (attributes["beta1"], attributes["beta2"])
            )
            return (one / tirx.Select(i == 0, first, tirx.sqrt(second))).astype("float32")

        return te.compute((2,), value, name="corrections")

    return builder.call_te(loops, *call.args, primfunc_name_hint="adam_corrections")


def squared_norm(tensors: Sequence[relax.Expr]) -> relax.Call:
    """The sum of the squares of all elements of some tensors, a scalar in float32."""
    return make_call("squared_norm", list(tensors))


def _infer_norm(call: relax.Call, _builder: relax.BlockBuilder | None = None) -> tvm.ir.Type:
    return relax.TensorType((), "float32")


def _legalize_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    sums = []
    for tensor in call.args:
        wide = builder.emit(relax.op.astype(tensor, "float32"))
        square = builder.emit(relax.op.multiply(wide, wide))
        sums.append(builder.emit(relax.op.reshape(relax.op.sum(square), (1,))))
    return relax.op.sum(builder.emit(relax.op.concat(sums, 0)))


register_op("optimizer_update", "One step of an optimizer.", _infer, _legalize, optimizer_update)
register_op(
    "adam_corrections", "Corrections of Adam's moments.",
    _infer_corrections, _legalize_corrections, adam_corrections,
)  # fmt: skip
register_op(
    "squared_norm", "Sum of the squares of tensors.",
    _infer_norm, _legalize_norm, squared_norm,
)  # fmt: skip
