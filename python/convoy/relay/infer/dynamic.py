"""`dyn.*` with constant shapes: the types of the static operators."""

from __future__ import annotations

from convoy.relay.ast import Call, Op
from convoy.relay.infer.rules import RULES, Inputs, rule
from convoy.relay.types import Type


def _static(call: Inputs) -> Type:
    from convoy.relay.canonicalize.dynamic import static_call

    call.count(len(_ARGUMENTS[call.name]))
    static = static_call(call.call, call.call.args)
    assert isinstance(static, Call) and isinstance(static.op, Op)
    kept = [call.types[list(call.call.args).index(arg)] for arg in static.args]
    return RULES[static.op.name](Inputs(static, kept))


_ARGUMENTS = {
    "dyn.broadcast_to": "xs",
    "dyn.expand_dims": "xa",
    "dyn.full": "xs",
    "dyn.image.resize2d": "xsr",
    "dyn.nn.pad": "xwv",
    "dyn.nn.upsampling": "xhw",
    "dyn.nn.upsampling3d": "xdhw",
    "dyn.one_hot": "xvvd",
    "dyn.ones": "s",
    "dyn.reshape": "xs",
    "dyn.squeeze": "xa",
    "dyn.strided_slice": "xbes",
    "dyn.tile": "xr",
    "dyn.topk": "xk",
    "dyn.zeros": "s",
}
rule(*_ARGUMENTS)(_static)
