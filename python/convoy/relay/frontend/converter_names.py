"""What converters of scripts import from `relay.frontend.common`, besides our importers' names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy.errors import UnsupportedOp
from convoy.relay.analysis import free_vars
from convoy.relay.ast import Expr, Function
from convoy.relay.binding import bind_params_by_name
from convoy.relay.builder import var as new_var
from convoy.relay.executor import create_executor
from convoy.relay.infer.incremental import type_of
from convoy.relay.module import IRModule
from convoy.relay.ops import builders
from convoy.relay.transform.fold_constant import FoldConstantExpr
from convoy.relay.types import TensorType

__all__ = ["fold_constant", "get_relay_op", "infer_channels", "infer_value", "new_var"]


def get_relay_op(op_name: str) -> Any:
    """Return the function that makes calls of an operator: "relu" and "nn.relu" are one.

    Raises:
        UnsupportedOp: No operator of that name.
    """
    for namespace in ("", "nn", "image", "vision", "contrib"):
        found = builders(namespace).get(op_name.removeprefix(f"{namespace}."))
        if found is not None:
            return found
    raise UnsupportedOp(f"Unable to map op_name {op_name} to relay", "an operator of Relay")


def infer_channels(inputs: Expr, transpose: bool = False) -> int:
    """Return the channels of a convolution's result by its weight, OIHW or, transposed, IOHW."""
    weight = type_of(inputs)
    assert isinstance(weight, TensorType)
    return weight.concrete_shape[1 if transpose else 0]


def infer_value(input_val: Expr, params: Mapping[str, Any], mod: IRModule | None = None) -> Any:
    """Compute an expression whose variables are all among the parameters.

    Args:
        input_val: The expression.
        params: Values by name.
        mod: The module of the functions that it calls.

    Returns:
        The tensor.
    """
    function = bind_params_by_name(Function(free_vars(input_val), input_val), params)
    return create_executor("debug", mod or IRModule()).evaluate(function)()


def fold_constant(node: Expr, mod: IRModule | None = None) -> Expr:
    """Compute what depends on constants alone."""
    del mod
    return FoldConstantExpr(node)
