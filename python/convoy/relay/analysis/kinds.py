"""The kinds of types: which types may stand where."""

from __future__ import annotations

from convoy.errors import RelayTypeError
from convoy.relay.adt import TypeData
from convoy.relay.module import IRModule
from convoy.relay.types import (
    FuncType,
    GlobalTypeVar,
    RefType,
    TupleType,
    Type,
    TypeCall,
    TypeKind,
    TypeRelation,
    TypeVar,
)


def check_kind(t: Type, mod: IRModule | None = None) -> TypeKind:
    """Return the kind of a type, its parts checked.

    Args:
        t: The type.
        mod: The module with the algebraic data types.

    Raises:
        RelayTypeError: A part of a kind that may not stand there.
    """
    if isinstance(t, (TypeVar, GlobalTypeVar)):
        return TypeKind(t.kind)
    if isinstance(t, TypeData):
        return _type_data(t, mod)
    if isinstance(t, TypeRelation):
        _expect(t.args, "a type relation", mod)
        return TypeKind.Constraint
    if isinstance(t, TypeCall):
        return _type_call(t, mod)
    if isinstance(t, TupleType):
        _expect(t.fields, "a tuple", mod)
    elif isinstance(t, RefType):
        _expect((t.value,), "a reference", mod)
    elif isinstance(t, FuncType):
        _expect((*t.arg_types, t.ret_type), "a function type", mod)
        for constraint in t.type_constraints:
            if check_kind(constraint, mod) is not TypeKind.Constraint:
                raise RelayTypeError(f"the constraint {constraint}", "a type relation")
    return TypeKind.Type


def _expect(parts: tuple[Type, ...], where: str, mod: IRModule | None) -> None:
    for part in parts:
        kind = check_kind(part, mod)
        if kind is not TypeKind.Type:
            raise RelayTypeError(f"{part}, of kind {kind.name}, in {where}", "kind Type")


def _type_call(t: TypeCall, mod: IRModule | None) -> TypeKind:
    if not isinstance(t.func, GlobalTypeVar) or t.func.kind != TypeKind.AdtHandle:
        raise RelayTypeError(f"{t}, a type call of {t.func}", "an algebraic data type")
    _expect(t.args, f"{t.func}", mod)
    if mod is None:
        raise RelayTypeError(f"{t} without its module", "mod=", "Pass the module that defines it")
    data = mod[t.func]
    if len(data.type_vars) != len(t.args):
        raise RelayTypeError(f"{t.func} of {len(t.args)} types", str(len(data.type_vars)))
    return TypeKind.Type


def _type_data(t: TypeData, mod: IRModule | None) -> TypeKind:
    inner = IRModule() if mod is None else mod.shallow_copy()
    inner.add_type(t)
    for var in t.type_vars:
        if var.kind != TypeKind.Type:
            raise RelayTypeError(f"the parameter {var} of {t.header}", "kind Type")
    for constructor in t.constructors:
        _expect(tuple(constructor.inputs), f"constructor {constructor.name_hint}", inner)
    return TypeKind.TypeData
