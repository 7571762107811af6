"""Inputs and results: names, structures, copies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convoy.relay.adt import ADT, ConstructorValue
from convoy.relay.ast import Constant
from convoy.relay.builder import numpy_dtype
from convoy.relay.lazy import tvm
from convoy.relay.params import to_array


def cast_input(value: Any, dtype: str | None, name: str) -> Any:
    """Cast an array to the dtype of the input that it is for, as TVM does."""
    if dtype is None or str(getattr(value, "dtype", "")) == dtype:
        return value
    array = to_array(value, f"input '{name}'")
    return array.astype(numpy_dtype(dtype), copy=False)


def copy(tensor: Any, device: Any) -> Any:
    return tvm.runtime.empty(tensor.shape, tensor.dtype, device).copyfrom(tensor)


def nested(tensors: Iterator[Any], result: Any) -> Any:
    """Return the tensors in a structure."""
    if result is None:
        return next(tensors)
    return ADT(0, [nested(tensors, field) for field in result])


def leaves(name: str, value: Any) -> list[tuple[str, Any]]:
    """Return the tensors of a value by their inputs' names: `t_0` and `t_1` of a tuple `t`."""
    if isinstance(value, Constant):
        return [(name, value.value)]
    if not isinstance(value, (tuple, ADT)) and not _is_list_of_tensors(value):
        return [(name, value)]
    return [leaf for i, field in enumerate(value) for leaf in leaves(f"{name}_{i}", field)]


def _is_list_of_tensors(value: Any) -> bool:
    """Check for a list that stands for a tuple; one of numbers is a tensor."""
    return isinstance(value, list) and any(
        hasattr(part, "shape") or _is_list_of_tensors(part) for part in value
    )


def flat(result: Any) -> list[Any]:
    """Return the tensors of nested tuples, in order."""
    if not isinstance(result, (list, tuple)) and not hasattr(result, "__len__"):
        return [result]
    if hasattr(result, "numpy") or isinstance(result, ConstructorValue):
        return [result]
    return [tensor for part in result for tensor in flat(part)]
