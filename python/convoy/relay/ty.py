"""`tvm.relay.ty`: types under their former path."""

from convoy.relay.types import (
    Any,
    FuncType,
    IncompleteType,
    TensorType,
    TupleType,
    Type,
    TypeVar,
    scalar_type,
)

__all__ = [
    "Any",
    "FuncType",
    "IncompleteType",
    "TensorType",
    "TupleType",
    "Type",
    "TypeVar",
    "scalar_type",
]
