"""Names of `relay.frontend.common` that converters in scripts import and our importers do not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from convoy.errors import ConvoyError, UnsupportedOp
from convoy.relay.analysis import free_vars
from convoy.relay.ast import Expr, Function, Tuple, TupleWrapper
from convoy.relay.binding import bind_params_by_name
from convoy.relay.builder import const
from convoy.relay.builder import var as new_var
from convoy.relay.executor import create_executor
from convoy.relay.infer.incremental import type_of
from convoy.relay.module import IRModule
from convoy.relay.op import tensor as R
from convoy.relay.ops import builders
from convoy.relay.transform.fold_constant import FoldConstantExpr
from convoy.relay.types import TensorType

__all__ = [
    "fold_constant",
    "get_relay_op",
    "infer_channels",
    "infer_value",
    "new_var",
    "shape_of",
    "to_int_list",
    "try_infer_value",
    "unbind",
]


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


def try_infer_value(
    val: Expr,
    on_success: Callable[[Any], Any] | None = None,
    on_failure: Callable[[], Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> tuple[Any, bool]:
    """Compute an expression where its value does not depend on inputs.

    Args:
        val: The expression.
        on_success: Called with the array, for what to return in its place.
        on_failure: Called for what to return in the place of the expression.
        parameters: Values by name.

    Returns:
        The array, or the expression if it has no value; and whether it has one.
    """
    try:
        found = infer_value(val, parameters or {}).numpy()
    except ConvoyError:
        return on_failure() if on_failure else val, False
    return on_success(found) if on_success else found, True


def shape_of(
    x: Expr, dtype: str = "int64", start: int | None = None, end: int | None = None
) -> Expr:
    """Return the sizes of a tensor, from `start` to `end`; a constant where they are known."""
    found = type_of(x)
    if isinstance(found, TensorType) and found.is_static:
        return const(list(found.concrete_shape)[slice(start, end)], dtype)
    sizes = R.shape_of(x, dtype)
    if start is None and end is None:
        return sizes
    last = end if end is not None else len(found.shape)  # type: ignore[attr-defined]
    return R.strided_slice(sizes, [start or 0], [last])


def to_int_list(np_array: Iterable[Any]) -> list[int]:
    """Convert numbers to those of Python."""
    return [int(x) for x in np_array]


def unbind(data: Expr, axis: int = 0) -> TupleWrapper:
    """Split a tensor along an axis, which goes."""
    found = type_of(data)
    assert isinstance(found, TensorType)
    axis %= len(found.shape)
    count = found.concrete_shape[axis]
    parts = R.split(data, count, axis)
    return TupleWrapper(Tuple([R.squeeze(parts[i], axis=[axis]) for i in range(count)]), count)
