"""Functions that users register for operators, and passes call.

A `register_*` function takes the operator's name and the function, or works as a decorator. A
higher `level` replaces what is registered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from convoy.relay.ast import Op
from convoy.relay.ast import op as get
from convoy.relay.custom_compute import (
    OpStrategy,
    register_compute,
    register_schedule,
    register_strategy,
)
from convoy.relay.custom_operator import register as _make
from convoy.relay.schema import is_op


class OpPattern:
    """Fusion kind of an operator."""

    ELEMWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    COMM_REDUCE = 3
    OUT_ELEMWISE_FUSABLE = 4
    TUPLE = 7
    OPAQUE = 8


def register_op_attr(
    op_name: str, attr_key: str, value: Any = None, level: int = 10
) -> Callable[[Any], Any] | Any:
    """Register a value for an operator under a key; without one, return a decorator."""

    def register(found: Any) -> Any:
        get(op_name).set_attr(attr_key, found, level)
        return found

    return register if value is None else register(value)


def register(op_name: str, describe: str = "", value: Any = None, level: int = 10) -> Any:
    """Make an operator of a new name; of a known one, register an attribute as in TVM 0.6.

    Args:
        op_name: The operator.
        describe: What it does, for readers; the key of the attribute.
        value, level: Of the attribute; see `register_op_attr`.

    Raises:
        InvalidOption: An operator of this name exists, and `describe` is no key.
    """
    if is_op(op_name) and describe and " " not in describe:
        return register_op_attr(op_name, describe, value, level)
    return _make(op_name)


def _registering(attr_key: str, what: str) -> Callable[..., Any]:
    def register(op_name: str, value: Any = None, level: int = 10) -> Any:
        return register_op_attr(op_name, attr_key, value, level)

    register.__doc__ = f"Register {what}."
    return register


register_legalize = _registering(
    "FTVMLegalize", "a function `(attrs, inputs, types)` that rewrites a call, or returns None"
)
register_alter_op_layout = _registering(
    "FTVMAlterOpLayout", "a function `(attrs, inputs, types, out_type)` that rewrites a call"
)
register_convert_op_layout = _registering(
    "FTVMConvertOpLayout", "a function `(attrs, inputs, types, layouts)` for ConvertLayout"
)
register_mixed_precision_conversion = _registering(
    "FTVMMixedPrecisionConversionType",
    "a function `(call, dtype)` that returns the conversion category and both dtypes",
)
register_fake_quantization_to_integer = _registering(
    "FTVMFakeQuantizationToInteger", "a function `(call, types)` that computes a call in integers"
)
register_optional_fake_quantization_to_integer = _registering(
    "FTVMOptionalFakeQuantizationToInteger",
    "a function `(call, types)` that computes a call in integers, less exactly: only on request",
)
register_infer_correct_layout = _registering(
    "FInferCorrectLayout",
    "a function `(attrs, new_in_layouts, old_in_layouts, old_in_types)` for passes over layouts",
)
register_qnn_legalize = _registering(
    "FTVMQnnLegalize", "a function `(attrs, inputs, types)` for `relay.qnn.transform.Legalize`"
)
register_gradient = _registering("FPrimalGradient", "a function `(call, grad)` of gradients")
register_pattern = _registering("TOpPattern", "an OpPattern")
register_stateful = _registering("TOpIsStateful", "whether an operator has a state")
register_shape_func = _registering("FShapeFunc", "a shape function, which has no effect")
register_external_compiler = _registering("target", "whether a code generator takes a call")


def register_injective_schedule(op_name: str, level: int = 10) -> None:
    """Accept that an operator is scheduled as TVM's elementwise ones are."""
    register_schedule(op_name, level=level)


register_broadcast_schedule = register_reduce_schedule = register_injective_schedule

__all__ = [
    "Op",
    "OpPattern",
    "OpStrategy",
    "get",
    "register",
    "register_alter_op_layout",
    "register_broadcast_schedule",
    "register_compute",
    "register_convert_op_layout",
    "register_external_compiler",
    "register_fake_quantization_to_integer",
    "register_gradient",
    "register_infer_correct_layout",
    "register_injective_schedule",
    "register_legalize",
    "register_mixed_precision_conversion",
    "register_op_attr",
    "register_optional_fake_quantization_to_integer",
    "register_pattern",
    "register_qnn_legalize",
    "register_reduce_schedule",
    "register_schedule",
    "register_shape_func",
    "register_stateful",
    "register_strategy",
]
