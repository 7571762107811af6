"""`tvm.ir`: modules of Relay functions and their comparison."""

from convoy.relay.adt import Constructor, TypeData
from convoy.relay.affine import TensorAffineType, TupleAffineType
from convoy.relay.ast import Expr, Function, GlobalVar, Op
from convoy.relay.equality import assert_structural_equal, structural_equal
from convoy.relay.hashing import structural_hash
from convoy.relay.json_format import load_json, save_json
from convoy.relay.module import IRModule
from convoy.relay.registration import register_op_attr
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
    "register_op_attr",
    "save_json",
    "structural_equal",
    "structural_hash",
]

__getattr__ = forward("tvm.ir")
