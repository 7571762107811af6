"""Calls of functions: argument checks, and types of polymorphic functions."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.errors import RelayTypeError
from convoy.relay.shapes import compatible
from convoy.relay.types import FuncType, Type, TypeVar, replace_types, type_parts


def instantiate(function: FuncType, args: Sequence[Type]) -> Type:
    """Infer the type of a call; type parameters are determined by the arguments.

    Raises:
        RelayTypeError: Arguments that do not fit.
    """
    if len(args) != len(function.arg_types):
        raise RelayTypeError(f"{len(args)} arguments", f"{len(function.arg_types)}")
    found: dict[TypeVar, Type] = {}
    for index, (wanted, got) in enumerate(zip(function.arg_types, args, strict=False)):
        _match(wanted, got, function.type_params, found)
        wanted = replace_types(wanted, found)
        if not compatible(got, wanted):
            raise RelayTypeError(f"argument {index} of type {got}", str(wanted))
    return replace_types(function.ret_type, found)


def _match(wanted: Type, got: Type, params: Sequence[TypeVar], found: dict[TypeVar, Type]) -> None:
    """Record what `got` has in the places of type parameters of `wanted`."""
    if isinstance(wanted, TypeVar) and wanted in params:
        found.setdefault(wanted, got)
    elif type(wanted) is type(got):
        for w, g in zip(type_parts(wanted), type_parts(got), strict=False):
            _match(w, g, params, found)
