"""`tvm.ir`: modules of Relay functions and their comparison."""

from convoy.relay.affine import TensorAffineType, TupleAffineType
from convoy.relay.ast import GlobalVar, Op
from convoy.relay.equality import assert_structural_equal, structural_equal
from convoy.relay.hashing import structural_hash
from convoy.relay.json_format import load_json, save_json
from convoy.relay.module import IRModule
from convoy.relay.registration import register_op_attr
from convoy.relay.source import Span
from convoy.relay.tvm018.ir import instrument
from convoy.relay.tvm018.modules import forward
from convoy.relay.types import FuncType, IncompleteType, TensorType, TupleType, Type, TypeVar

__all__ = [
    "FuncType",
    "GlobalVar",
    "IncompleteType",
    "IRModule",
    "Op",
    "Span",
    "TensorAffineType",
    "TensorType",
    "TupleAffineType",
    "TupleType",
    "Type",
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
