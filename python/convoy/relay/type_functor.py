"""Visitors with a method for each kind of type, as in TVM 0.18."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay import types as ty
from convoy.relay.adt import Constructor, TypeData
from convoy.relay.types import Type

_METHODS: tuple[tuple[type[Type], str], ...] = (
    (ty.TypeVar, "visit_type_var"),
    (ty.IncompleteType, "visit_incomplete_type"),
    (ty.TensorType, "visit_tensor_type"),
    (ty.FuncType, "visit_func_type"),
    (ty.TupleType, "visit_tuple_type"),
    (ty.TypeRelation, "visit_type_relation"),
    (ty.RefType, "visit_ref_type"),
    (ty.GlobalTypeVar, "visit_global_type_var"),
    (ty.TypeCall, "visit_type_call"),
    (TypeData, "visit_type_data"),
)


class TypeFunctor:
    """Call the method of a type's kind."""

    def visit(self, typ: Type) -> Any:
        """Return the result of the type's method."""
        name = next((method for kind, method in _METHODS if isinstance(typ, kind)), "")
        return getattr(self, name, self.visit_default)(typ)

    def visit_default(self, typ: Type) -> Any:
        """Handle a kind of type without a method."""
        raise NotImplementedError(f"no method for a {type(typ).__name__}")


class TypeVisitor(TypeFunctor):
    """Visit all parts of a type."""

    def visit_default(self, typ: Type) -> Any:
        for part in _parts(typ):
            self.visit(part)

    visit_type_var = visit_incomplete_type = visit_tensor_type = visit_func_type = visit_default
    visit_tuple_type = visit_type_relation = visit_ref_type = visit_default
    visit_global_type_var = visit_type_call = visit_type_data = visit_default


class TypeMutator(TypeFunctor):
    """Rebuild a type from its rebuilt parts; a type whose parts stay the same is kept."""

    def visit_default(self, typ: Type) -> Any:
        parts = _parts(typ)
        new = [self.visit(part) for part in parts]
        if all(a is b for a, b in zip(parts, new, strict=True)):
            return typ
        return _with_parts(typ, new)

    visit_type_var = visit_incomplete_type = visit_tensor_type = visit_func_type = visit_default
    visit_tuple_type = visit_type_relation = visit_ref_type = visit_default
    visit_global_type_var = visit_type_call = visit_type_data = visit_default


def _parts(typ: Type) -> Sequence[Type]:
    """Return the types directly inside a type, those that declare others included."""
    if isinstance(typ, ty.FuncType):
        return (*typ.arg_types, typ.ret_type, *typ.type_params, *typ.type_constraints)
    if isinstance(typ, ty.TypeRelation):
        return typ.args
    if isinstance(typ, TypeData):
        fields = [field for constructor in typ.constructors for field in constructor.inputs]
        return (typ.header, *typ.type_vars, *fields)
    return ty.type_parts(typ)


def _with_parts(typ: Type, parts: list[Any]) -> Type:
    if isinstance(typ, ty.FuncType):
        ret = len(typ.arg_types)
        constraints = ret + 1 + len(typ.type_params)
        return ty.FuncType(
            parts[:ret], parts[ret], parts[ret + 1 : constraints], parts[constraints:]
        )
    if isinstance(typ, ty.TypeRelation):
        return ty.TypeRelation(typ.func, tuple(parts), typ.num_inputs, typ.attrs)
    if isinstance(typ, TypeData):
        header, *rest = parts
        params, fields = rest[: len(typ.type_vars)], iter(rest[len(typ.type_vars) :])
        constructors = [
            Constructor(c.name_hint, [next(fields) for _ in c.inputs], header)
            for c in typ.constructors
        ]
        return TypeData(header, params, constructors)
    return ty.with_parts(typ, parts)
