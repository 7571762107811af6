"""Calls of functions: argument checks, and types of polymorphic functions."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.errors import RelayTypeError
from convoy.relay.shapes import compatible
from convoy.relay.types import FuncType, TupleType, Type, TypeVar


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
        wanted = substitute(wanted, found)
        if not compatible(got, wanted):
            raise RelayTypeError(f"argument {index} of type {got}", str(wanted))
    return substitute(function.ret_type, found)


def _match(wanted: Type, got: Type, params: Sequence[TypeVar], found: dict[TypeVar, Type]) -> None:
    """Record what `got` has in the places of type parameters of `wanted`."""
    if isinstance(wanted, TypeVar) and wanted in params:
        found.setdefault(wanted, got)
    elif isinstance(wanted, TupleType) and isinstance(got, TupleType):
        for w, g in zip(wanted.fields, got.fields, strict=False):
            _match(w, g, params, found)
    elif isinstance(wanted, FuncType) and isinstance(got, FuncType):
        for w, g in zip(wanted.arg_types, got.arg_types, strict=False):
            _match(w, g, params, found)
        _match(wanted.ret_type, got.ret_type, params, found)


def substitute(type_: Type, found: dict[TypeVar, Type]) -> Type:
    """Replace the type parameters of a type."""
    if isinstance(type_, TypeVar):
        return found.get(type_, type_)
    if isinstance(type_, TupleType):
        return TupleType([substitute(f, found) for f in type_.fields])
    if isinstance(type_, FuncType):
        args = [substitute(a, found) for a in type_.arg_types]
        return FuncType(args, substitute(type_.ret_type, found), type_.type_params)
    return type_
