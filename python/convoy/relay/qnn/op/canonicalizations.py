"""`relay.qnn.op.canonicalizations`: functions of quantized values as tables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from convoy.errors import InvalidOption
from convoy.relay.ast import Constant, Expr
from convoy.relay.executor import create_executor
from convoy.relay.module import IRModule
from convoy.relay.ops.qnn_unary import looked_up, lookup_table


def run_const_expr(expr: Expr) -> np.ndarray:
    """Evaluate an expression of constants."""
    return create_executor("vm", mod=IRModule.from_expr(expr)).evaluate()().numpy()


def create_integer_lookup_table(
    floating_point_func: Callable[[np.ndarray], np.ndarray],
    input_scale: Constant,
    input_zero_point: Constant,
    output_scale: Constant,
    output_zero_point: Constant,
    in_axis: int = -1,
    out_axis: int = -1,
    in_dtype: str = "uint8",
    out_dtype: str = "uint8",
) -> np.ndarray:
    """Compute the results of a function for all quantized values.

    Args:
        floating_point_func: Takes and returns float32 arrays.
        input_scale, input_zero_point, output_scale, output_zero_point: Constants of one value.
        in_axis, out_axis: Accepted; there are no channels.
        in_dtype, out_dtype: Dtypes of 8 or 16 bits.

    Returns:
        The table, in the order of the values' unsigned codes.

    Raises:
        InvalidOption: A dtype that is not of 8 or 16 bits.
    """
    del in_axis, out_axis
    known = ("int8", "uint8", "int16", "uint16")
    if in_dtype not in known or out_dtype not in known:
        raise InvalidOption(f"dtypes '{in_dtype}' and '{out_dtype}'", ", ".join(known))
    numbers = (input_scale, input_zero_point, output_scale, output_zero_point)
    return lookup_table(floating_point_func, [n.value for n in numbers], in_dtype, out_dtype)


def create_integer_lookup_op(
    input_arg: Expr,
    floating_point_func: Callable[[np.ndarray], np.ndarray],
    in_scale: Constant,
    in_zero_point: Constant,
    out_scale: Constant,
    out_zero_point: Constant,
    in_axis: int = -1,
    out_axis: int = -1,
    in_dtype: str = "uint8",
    out_dtype: str = "uint8",
) -> Expr:
    """Apply a function to quantized values by its table; see `create_integer_lookup_table`."""
    table = create_integer_lookup_table(
        floating_point_func, in_scale, in_zero_point, out_scale, out_zero_point,
        in_axis, out_axis, in_dtype, out_dtype,
    )  # fmt: skip
    return looked_up(input_arg, in_dtype, table)
