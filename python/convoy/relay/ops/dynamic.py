"""`dyn.*`: operators that take shapes as arguments.

With constant shapes they are the static operators, into which they are expanded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.errors import RelayTypeError
from convoy.relay.ast import Call, Expr, Op
from convoy.relay.ops.expansion_call import attrs_of, constant, name_of, plain
from convoy.relay.ops.registry import OPERATORS, expansion, type_rule
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.types import Type


def _ints(call: Call, value: Expr, what: str = "a shape") -> tuple[int, ...]:
    return tuple(int(v) for v in constant(call, value, what).reshape(-1))


def _one(call: Call, value: Expr, what: str) -> Any:
    """Return the single value of an argument.

    Raises:
        RelayTypeError: Several values.
    """
    numbers = constant(call, value, what).reshape(-1)
    if len(numbers) != 1:
        raise RelayTypeError(f"{name_of(call)} with {len(numbers)} values for {what}", "one")
    return numbers[0].item()


def static_call(call: Call, args: Sequence[Expr]) -> Expr:
    """Make the call of the static operator.

    Raises:
        UnsupportedOp: A shape that is computed.
        RelayTypeError: A wrong number of values.
    """
    name = name_of(call)
    static = name.removeprefix("dyn.")
    attrs: dict[str, Any] = dict(attrs_of(call))
    taken = 1
    if static in ("zeros", "ones"):
        attrs["shape"], taken = _ints(call, args[0]), 0
    elif static in ("broadcast_to", "full"):
        attrs["shape"] = _ints(call, args[1])
    elif static == "reshape":
        attrs["newshape"] = _ints(call, args[1])
    elif static == "tile":
        attrs["reps"] = _ints(call, args[1], "repetitions")
    elif static == "squeeze":
        attrs["axis"] = _ints(call, args[1], "axes")
    elif static == "expand_dims":
        attrs["axis"] = int(_one(call, args[1], "an axis"))
    elif static == "topk":
        attrs["k"] = int(_one(call, args[1], "k"))
    elif static == "one_hot":
        attrs["depth"], taken = int(_one(call, args[3], "a depth")), 3
    elif static == "strided_slice":
        for position, field in enumerate(("begin", "end", "strides"), 1):
            attrs[field] = _ints(call, args[position], f"{field}")
        attrs["axes"] = None
    elif static == "nn.pad":
        flat = _ints(call, args[1], "a width")
        if len(flat) % 2:
            raise RelayTypeError(f"{name_of(call)} with {len(flat)} widths", "pairs")
        attrs["pad_width"] = tuple(zip(flat[::2], flat[1::2], strict=True))
        return plain(static, args[0], args[2], **attrs)
    elif static == "image.resize2d":
        attrs["size"] = _ints(call, args[1], "a size")
        attrs["roi"] = tuple(float(v) for v in constant(call, args[2], "a region").reshape(-1))
    else:
        for position, field in enumerate(("scale_d", "scale_h", "scale_w")[-len(args) + 1 :], 1):
            attrs[field] = float(_one(call, args[position], "a scale"))
    return plain(static, *args[:taken], **attrs)


# The number of arguments of each operator.
_ARGUMENTS = {
    "dyn.broadcast_to": 2,
    "dyn.expand_dims": 2,
    "dyn.full": 2,
    "dyn.image.resize2d": 3,
    "dyn.nn.pad": 3,
    "dyn.nn.upsampling": 3,
    "dyn.nn.upsampling3d": 4,
    "dyn.one_hot": 4,
    "dyn.ones": 1,
    "dyn.reshape": 2,
    "dyn.squeeze": 2,
    "dyn.strided_slice": 4,
    "dyn.tile": 2,
    "dyn.topk": 2,
    "dyn.zeros": 1,
}
expansion(*_ARGUMENTS)(static_call)


@type_rule(*_ARGUMENTS)
def infer_dynamic(call: Inputs) -> Type:
    """Apply the rule of the static operator."""
    call.count(_ARGUMENTS[call.name])
    static = static_call(call.call, call.call.args)
    assert isinstance(static, Call) and isinstance(static.op, Op)
    kept = [call.types[list(call.call.args).index(arg)] for arg in static.args]
    rule = OPERATORS[static.op.name].type_rule
    assert rule is not None
    return rule(Inputs(static, kept))
