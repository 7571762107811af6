"""Types and parameters of the Relax function: what a Relay type is in Relax."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from convoy.errors import RelayTypeError, UnsupportedDtype, UnsupportedOp
from convoy.relay import ast
from convoy.relay import types as ty
from convoy.relay.ast import Function, Var
from convoy.relay.lazy import relax, tirx
from convoy.relay.ops.relax_call import RelaxExpr
from convoy.relay.params import to_array

_DTYPE = re.compile(r"(?:u?int(?:8|16|32|64)|float(?:16|32|64)|bfloat16|bool)")


def bound_params(function: Function, params: Mapping[str, Any]) -> dict[Var, np.ndarray]:
    """Return the values of the function's parameters that `params` names.

    Raises:
        RelayTypeError: A value of another type, or a name that two parameters have.
    """
    found: dict[Var, np.ndarray] = {}
    for var in function.params:
        if var.name_hint not in params:
            continue
        if any(v.name_hint == var.name_hint for v in found):
            raise RelayTypeError(f"params['{var.name_hint}']", "one parameter of that name")
        array = to_array(params[var.name_hint], f"params['{var.name_hint}']")
        wanted = var.checked_type
        got = ty.TensorType(array.shape, ast.dtype_name(array.dtype))
        if isinstance(wanted, ty.TensorType) and not _fits(got, wanted):
            raise RelayTypeError(f"params['{var.name_hint}'] of type {got}", str(wanted))
        found[var] = array
    return found


def _fits(got: ty.TensorType, wanted: ty.TensorType) -> bool:
    if got.dtype != wanted.dtype or len(got.shape) != len(wanted.shape):
        return False
    return all(
        g == w or not isinstance(w, int) for g, w in zip(got.shape, wanted.shape, strict=False)
    )


def make_parameter(name: str, type_: ty.Type, params: list[RelaxExpr]) -> RelaxExpr:
    """Append a parameter of `main` to `params`; return its value.

    A tuple becomes one parameter for each field, in order, named `name_0`, `name_1`, as graph
    executors count inputs.
    """
    if isinstance(type_, ty.TupleType):
        fields = enumerate(type_.fields)
        return relax.Tuple([make_parameter(f"{name}_{i}", field, params) for i, field in fields])
    value = relax.Var(name, relax_type(type_))
    params.append(value)
    return value


def relax_type(type_: ty.Type) -> Any:
    """Convert a Relay type; each dynamic dimension becomes a symbolic one.

    Raises:
        UnsupportedDtype: A dtype that Relax does not have.
        UnsupportedOp: Neither a tensor nor a tuple.
    """
    if isinstance(type_, ty.TensorType):
        check_dtype(type_)
        named: dict[str, Any] = {}
        dims = []
        shape: Sequence[Any] = type_.shape  # also with expressions of TVM
        for index, dim in enumerate(shape):
            if isinstance(dim, ty.SymbolicDim):
                dims.append(named.setdefault(dim.name, tirx.Var(dim.name, "int64")))
            elif isinstance(dim, ty.Any):
                dims.append(tirx.Var(f"d{index}", "int64"))
            elif isinstance(dim, int) or str(dim.ty.dtype) == "int64":
                dims.append(dim)
            else:  # `te.var` is int32, and Relax counts in int64
                dims.append(named.setdefault(str(dim), tirx.Var(f"d{index}", "int64")))
        return relax.TensorType(dims, type_.dtype)
    if isinstance(type_, ty.TupleType):
        return relax.TupleType([relax_type(f) for f in type_.fields])
    raise UnsupportedOp(f"a value of type {type_}", "tensors and tuples")


def check_dtype(type_: ty.Type) -> None:
    """Check that Relax has the dtypes of a type.

    Raises:
        UnsupportedDtype: It does not.
    """
    if isinstance(type_, ty.TupleType):
        for field in type_.fields:
            check_dtype(field)
    elif isinstance(type_, ty.TensorType) and not _DTYPE.fullmatch(type_.dtype):
        raise UnsupportedDtype(
            f"dtype '{type_.dtype}'",
            "float16/32/64, bfloat16, int8 to int64, uint8 to uint64, bool",
        )


def unique(names: Sequence[str]) -> list[str]:
    """Append a number to each name that occurred before."""
    seen: set[str] = set()
    out = []
    for name in names:
        found, n = name, 0
        while found in seen:
            n += 1
            found = f"{name}{n}"
        seen.add(found)
        out.append(found)
    return out
