"""`dyn.*`: operators that take shapes as arguments. With constants they are the static ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.errors import RelayTypeError
from convoy.relay import ast
from convoy.relay.ast import Expr
from convoy.relay.canonicalize.registry import attrs_of, constant, expands, name_of, plain


def _ints(call: ast.Call, value: Expr, what: str = "a shape") -> tuple[int, ...]:
    return tuple(int(v) for v in constant(call, value, what).reshape(-1))


def _one(call: ast.Call, value: Expr, what: str) -> Any:
    """The only number of an argument.

    Raises:
        RelayTypeError: several numbers.
    """
    numbers = constant(call, value, what).reshape(-1)
    if len(numbers) != 1:
        raise RelayTypeError(f"{name_of(call)} with {len(numbers)} values for {what}", "one")
    return numbers[0].item()


def static_call(call: ast.Call, args: Sequence[Expr]) -> Expr:
    """The call of the static operator that this is.

    Raises:
        UnsupportedOp: a shape that is computed.
        RelayTypeError: more values than there is room for.
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


STATIC = (
    "broadcast_to expand_dims full image.resize2d nn.pad nn.upsampling nn.upsampling3d one_hot ones"
    " reshape squeeze strided_slice tile topk zeros"
)
expands(*(f"dyn.{name}" for name in STATIC.split()))(static_call)
