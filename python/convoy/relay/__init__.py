"""The Relay front door: what TVM removed in 0.20, as far as compiling needs it.

Reads and prints the text format, reads and writes `save_json` and parameter files, builds
expressions with TVM 0.18's names, and compiles with `relay.build`.
"""

from convoy.relay import (
    adt,
    analysis,
    backend,
    base,
    build_module,
    dataflow_pattern,
    expr,
    former_paths,
    frontend,
    function,
    ir_pass,
    loops,
    op,
    prelude,
    qnn,
    quantize,
    removed,
    scope_builder,
    testing,
    transform,
    ty,
    vm,
)
from convoy.relay.adt import (
    Clause,
    Constructor,
    Match,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    RefCreate,
    RefRead,
    RefWrite,
    TypeData,
)
from convoy.relay.analysis import Feature, alpha_equal, detect_feature
from convoy.relay.api import fromtext, parse, parse_expr
from convoy.relay.ast import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Tuple,
    TupleGetItem,
    TupleWrapper,
    Var,
)
from convoy.relay.build import build
from convoy.relay.builder import ScopeBuilder, const, var
from convoy.relay.convert import to_relax
from convoy.relay.equality import assert_structural_equal, structural_equal
from convoy.relay.executor import create_executor
from convoy.relay.expr import ExprWithOp
from convoy.relay.expr_functor import ExprFunctor, ExprMutator, ExprVisitor
from convoy.relay.json_format import load_json, save_json
from convoy.relay.loading import load_module
from convoy.relay.module import IRModule, Module
from convoy.relay.op import *  # noqa: F403
from convoy.relay.params import load_param_dict, save_param_dict
from convoy.relay.printer import astext, pretty_print
from convoy.relay.source import SourceName, Span
from convoy.relay.transform.base import (
    FunctionPass,
    ModulePass,
    Pass,
    PassInfo,
    Sequential,
    function_pass,
    module_pass,
)
from convoy.relay.transform.context import PassContext, build_config
from convoy.relay.transform.pipeline import optimize
from convoy.relay.type_functor import TypeFunctor, TypeMutator, TypeVisitor
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
from convoy.relay.visit import bind
from convoy.relay.with_fields import (
    IfWithFields,
    LetWithFields,
    RefCreateWithFields,
    RefReadWithFields,
    RefWriteWithFields,
)

__all__ = [
    "adt",
    "Clause",
    "Constructor",
    "GlobalTypeVar",
    "loops",
    "Match",
    "PatternConstructor",
    "PatternTuple",
    "PatternVar",
    "PatternWildcard",
    "prelude",
    "RefCreate",
    "RefRead",
    "RefType",
    "RefWrite",
    "TypeCall",
    "TypeFunctor",
    "TypeMutator",
    "TypeVisitor",
    "TypeData",
    "TypeKind",
    "TypeRelation",
    "analysis",
    "Any",
    "assert_structural_equal",
    "astext",
    "backend",
    "bind",
    "build_module",
    "base",
    "create_executor",
    "expr",
    "function",
    "scope_builder",
    "ty",
    "dataflow_pattern",
    "vm",
    "build",
    "build_config",
    "Call",
    "const",
    "Constant",
    "Expr",
    "ExprFunctor",
    "ExprMutator",
    "ExprVisitor",
    "ExprWithOp",
    "IfWithFields",
    "LetWithFields",
    "RefCreateWithFields",
    "RefReadWithFields",
    "RefWriteWithFields",
    "frontend",
    "fromtext",
    "Feature",
    "Function",
    "alpha_equal",
    "detect_feature",
    "FuncType",
    "FunctionPass",
    "ModulePass",
    "Pass",
    "PassContext",
    "PassInfo",
    "Sequential",
    "function_pass",
    "module_pass",
    "GlobalVar",
    "If",
    "IncompleteType",
    "IRModule",
    "ir_pass",
    "Module",
    "Let",
    "load_json",
    "load_module",
    "load_param_dict",
    "op",
    "optimize",
    "parse",
    "parse_expr",
    "pretty_print",
    "qnn",
    "quantize",
    "save_json",
    "save_param_dict",
    "scalar_type",
    "ScopeBuilder",
    "SourceName",
    "Span",
    "structural_equal",
    "TensorType",
    "testing",
    "to_relax",
    "transform",
    "Tuple",
    "TupleGetItem",
    "TupleType",
    "TupleWrapper",
    "Type",
    "TypeVar",
    "Var",
    "var",
    *op.__all__,
]

former_paths.install("convoy")
removed.install()
