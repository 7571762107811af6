"""Quantization that is simulated in floating point, to a dtype that may be chosen at run time."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.relay.ast import Call, Expr
from convoy.relay.ops.arguments import make_call
from convoy.relay.ops.expansion_call import attrs_of, const, name_of, plain, type_of
from convoy.relay.ops.qnn_arithmetic import Scale
from convoy.relay.ops.registry import builder, expansion, type_rule
from convoy.relay.ops.reshape import reshape
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.types import Type

# Of the dtypes as an argument; "disable" passes the values on.
_CODES = {"disable": 0, "int8": 1, "uint8": 2, "int32": 3}
# The smallest and the largest values by code.
_LIMITS = [0.0, -128.0, 0.0, -(2.0**31)], [0.0, 127.0, 255.0, 2.0**31 - 1]


def _code(dtype: str | Expr) -> Expr:
    return dtype if isinstance(dtype, Expr) else const(_CODES[dtype], "int32")


@builder("qnn.simulated_quantize")
def simulated_quantize(
    data: Expr,
    output_scale: Expr,
    output_zero_point: Expr,
    axis: int = -1,
    out_dtype: str | Expr = "int8",
) -> Call:
    """Round to the values that a quantized tensor would have, in float32.

    Args:
        output_scale, output_zero_point: One value, or one for each channel; may be computed.
        axis: The axis of the channels.
        out_dtype: "int8", "uint8", "int32", "disable", or an int32 scalar with its code.
    """
    scale, zero = reshape(output_scale, [-1]), reshape(output_zero_point, [-1])
    return make_call("qnn.simulated_quantize", data, _code(out_dtype), scale, zero, axis=axis)


@builder("qnn.simulated_dequantize")
def simulated_dequantize(
    data: Expr,
    input_scale: Expr,
    input_zero_point: Expr,
    axis: int = -1,
    in_dtype: str | Expr = "int8",
) -> Call:
    """Compute scale * (data - zero point) of float32 values; see `simulated_quantize`."""
    scale, zero = reshape(input_scale, [-1]), reshape(input_zero_point, [-1])
    attrs = {"axis": axis, "out_dtype": "float32"}
    return make_call("qnn.simulated_dequantize", data, _code(in_dtype), scale, zero, **attrs)


@type_rule("qnn.simulated_quantize", "qnn.simulated_dequantize")
def infer_simulated(call: Inputs) -> Type:
    call.count(4)
    data = call.tensor(0)
    axis = call.attrs.get_int("axis")
    for index in (2, 3):
        found = call.tensor(index, 1).shape[0]
        if isinstance(found, int) and found != 1 and data.is_static:
            channels = data.shape[call.axis(axis, len(data.shape))]
            if found != channels:
                raise call.error(f"{found} scales or zero points", f"1 or {channels}")
    return data


@expansion("qnn.simulated_quantize", "qnn.simulated_dequantize")
def expand_simulated(call: Call, args: Sequence[Expr]) -> Expr:
    """Select by the code what the dtype allows."""
    data, dtype = args[0], plain("reshape", args[1], newshape=())
    ndim, axis = len(type_of(call, 0).shape), int(attrs_of(call)["axis"])
    scale, zero = (Scale(args[i], type_of(call, i)).along(axis, ndim, "float32") for i in (2, 3))
    if name_of(call) == "qnn.simulated_quantize":
        steps = plain("add", plain("round", plain("divide", data, scale)), zero)
        low, high = (plain("take", const(v, "float32"), dtype, mode="clip") for v in _LIMITS)
        result = plain("maximum", plain("minimum", steps, high), low)
    else:
        result = plain("multiply", plain("subtract", data, zero), scale)
    return plain("where", plain("equal", dtype, const(0, "int32")), data, result)
