"""`tvm.relay.ty`: types under their former path."""

from convoy.relay.adt import TypeData
from convoy.relay.types import (
    Any,
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeKind,
    TypeRelation,
    TypeVar,
    scalar_type,
)

__all__ = [
    "Any",
    "FuncType",
    "GlobalTypeVar",
    "IncompleteType",
    "RefType",
    "TensorType",
    "TupleType",
    "Type",
    "TypeCall",
    "TypeData",
    "TypeKind",
    "TypeRelation",
    "TypeVar",
    "scalar_type",
]
