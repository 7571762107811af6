"""`tvm.ir`: modules of Relay functions and their comparison."""

from typing import Any

from convoy.relay.adt import Constructor, TypeData
from convoy.relay.affine import TensorAffineType, TupleAffineType
from convoy.relay.ast import Expr, Function, GlobalVar, Op
from convoy.relay.attrs import Attrs
from convoy.relay.equality import assert_structural_equal, structural_equal
from convoy.relay.hashing import structural_hash
from convoy.relay.json_format import load_json, save_json
from convoy.relay.module import IRModule
from convoy.relay.registration import register_op_attr
from convoy.relay.schema import attrs_class
from convoy.relay.source import SourceName, Span
from convoy.relay.tvm018.ir import instrument
from convoy.relay.tvm018.ir.env_func import EnvFunc
from convoy.relay.tvm018.modules import forward
from convoy.relay.types import (
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
)

__getattr__ = forward("tvm.ir")


def make_node(type_key: str, **fields: Any) -> Any:
    """Make a node by its type key: attributes of an operator, or a node of TVM's."""
    cls = attrs_class(type_key)
    if cls is None and type_key != "DictAttrs":
        return __getattr__("make_node")(type_key, **fields)
    return Attrs(cls, fields)


BaseFunc = Function
RelayExpr = Expr
RelayRefType = RefType

__all__ = [
    "BaseFunc",
    "Constructor",
    "EnvFunc",
    "FuncType",
    "GlobalTypeVar",
    "GlobalVar",
    "IncompleteType",
    "IRModule",
    "Op",
    "RelayExpr",
    "RelayRefType",
    "SourceName",
    "Span",
    "TensorAffineType",
    "TensorType",
    "TupleAffineType",
    "TupleType",
    "Type",
    "TypeCall",
    "TypeData",
    "TypeKind",
    "TypeRelation",
    "TypeVar",
    "assert_structural_equal",
    "instrument",
    "load_json",
    "make_node",
    "register_op_attr",
    "save_json",
    "structural_equal",
    "structural_hash",
]
