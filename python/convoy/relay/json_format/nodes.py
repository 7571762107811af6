"""Decoders of the types of node.

A decoder that needs other nodes is a generator: `yield index` gives the decoded object.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import numpy as np

from convoy.errors import ConvoyError, RelaySyntaxError, UnsupportedOp
from convoy.relay import ast
from convoy.relay import types as ty
from convoy.relay.attrs import Attrs, Int64, complete_attrs, make_attrs
from convoy.relay.json_format.scalars import string_of, to_int
from convoy.relay.module import IRModule
from convoy.relay.schema import MANDATORY, Field, attrs_class
from convoy.relay.source import Span

if TYPE_CHECKING:
    from convoy.relay.json_format.reader import Node

Step = Generator[int, Any, Any]
Decoder = Callable[["Node"], Any]  # the object, or a Step that returns it
DECODERS: dict[str, Decoder] = {}

# What TVM 0.6 called the types that lost their prefix or changed their name.
_RENAMED = {
    "relay.Module": "IRModule",
    "StrMap": "Map",
    "Variable": "tir.Var",
    "SizeVar": "tir.SizeVar",
    "Any": "tir.Any",
    "relay.Any": "tir.Any",
    "ffi.String": "runtime.String",
    "ffi.Array": "Array",
    "ffi.Map": "Map",
}
_UNPREFIXED = (  # noqa: SIM905
    "Op GlobalVar TupleType FuncType IncompleteType TypeVar GlobalTypeVar TypeCall TypeData"
    " Constructor RelayRefType TensorType SourceName Span"
).split()


def canonical_key(key: str) -> str:
    """Return a type key as TVM 0.18 spells it."""
    if key in _RENAMED:
        return _RENAMED[key]
    bare = key.removeprefix("relay.")
    if bare in _UNPREFIXED and bare != "TensorType":
        return bare
    return key


def decodes(*keys: str) -> Callable[[Decoder], Decoder]:
    """Register the decoder of type keys."""

    def register(function: Decoder) -> Decoder:
        for key in keys:
            DECODERS[key] = function
        return function

    return register


def _is(value: Any, kind: type | tuple[type, ...], node: Node, field: str) -> Any:
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        wanted = " or ".join(k.__name__ for k in kinds)
        raise RelaySyntaxError(f"{node.key}.{field} is a {type(value).__name__}", f"a {wanted}")
    return value


def _all(values: Any, kind: type | tuple[type, ...], node: Node, field: str) -> tuple[Any, ...]:
    return tuple(_is(v, kind, node, field) for v in _is(values or (), tuple, node, field))


# ---- containers and plain values


@decodes("")
def null(node: Node) -> Any:
    return None


# Arrays beyond these are written by nothing; printing them recurses and repeats shared ones.
_MAX_ARRAY_DEPTH = 16
_MAX_ARRAY_SIZE = 1_000_000


@decodes("Array")
def array(node: Node) -> Step:
    items = tuple((yield from node.data()))
    inner = [node.file.measures.get(id(item), (0, 1)) for item in items]
    depth = 1 + max((d for d, _ in inner), default=0)
    size = 1 + sum(s for _, s in inner)
    if depth > _MAX_ARRAY_DEPTH or size > _MAX_ARRAY_SIZE:
        raise RelaySyntaxError(
            f"an array nested {depth} deep with {size} elements",
            f"at most {_MAX_ARRAY_DEPTH} deep with {_MAX_ARRAY_SIZE} elements",
        )
    node.file.measures[id(items)] = (depth, size)
    return items


@decodes("Map")
def mapping(node: Node) -> Step:
    items = yield from node.data()
    keys = node.raw.get("keys")
    if keys is None:
        if len(items) % 2:
            raise RelaySyntaxError("a map with a key that has no value")
        keys, items = items[::2], items[1::2]
    if not isinstance(keys, list) or len(keys) != len(items):
        raise RelaySyntaxError("a map with unequal numbers of keys and values")
    try:
        return dict(zip(keys, items, strict=False))
    except TypeError:
        raise RelaySyntaxError("a map with keys that are no names") from None


@decodes("runtime.String")
def string(node: Node) -> Any:
    return string_of(node.raw)


@decodes("runtime.BoxInt", "runtime.BoxBool")
def box_int(node: Node) -> Any:
    return to_int(str(node.raw.get("repr_str", "")), node.key)


@decodes("runtime.BoxFloat")
def box_float(node: Node) -> Any:
    return _float(str(node.raw.get("repr_str", "")), node.key)


@decodes("IntImm")
def int_imm(node: Node) -> Any:
    value, dtype = node.int("value"), node.text("dtype")
    if dtype == "bool":
        return bool(value)
    return Int64(value) if dtype == "int64" else value


@decodes("FloatImm")
def float_imm(node: Node) -> Any:
    return _float(node.text("value"), "FloatImm.value")


def _float(text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise RelaySyntaxError(f"{what} = '{text[:32]}'", "a number") from None
    if math.isnan(value):
        raise RelaySyntaxError(f"{what} = nan", "a number")
    return value


@decodes("DictAttrs")
def dict_attrs(node: Node) -> Step:
    values = yield from node.ref("__dict__")
    return Attrs(None, {str(k): v for k, v in _is(values or {}, dict, node, "__dict__").items()})


@decodes("VirtualDevice", "SourceMap", "Source", "EnvFunc", "Target")
def opaque(node: Node) -> Any:
    """Drop a node that does not affect the meaning of a program."""
    return None


@decodes("SourceName")
def source_name(node: Node) -> Any:
    return str(node.raw.get("repr_str", node.fields.get("name", "")))


@decodes("Span")
def span(node: Node) -> Step:
    name = yield from node.ref("source_name")
    return Span(str(name), node.int("line"), node.int("column"))


@decodes("SequentialSpan")
def sequential_span(node: Node) -> Step:
    spans = yield from node.ref("spans")
    found = [s for s in spans or () if isinstance(s, Span)]
    return found[0] if found else None


def _span(node: Node) -> Step:
    found = yield from node.ref("span")
    return found if isinstance(found, Span) else None


# ---- types


@decodes("relay.TensorType")
def tensor_type(node: Node) -> Step:
    shape = yield from node.ref("shape")
    shape = _all(shape, (int, ty.Any, ty.SymbolicDim), node, "shape")
    if any(isinstance(d, int) and d < 0 for d in shape):
        raise RelaySyntaxError(f"a tensor of shape {shape}", "sizes of at least 0")
    return ty.TensorType([int(d) if isinstance(d, int) else d for d in shape], node.text("dtype"))


@decodes("tir.Any")
def any_dim(node: Node) -> Any:
    return ty.Any()


@decodes("tir.Var", "tir.SizeVar")
def symbolic_dim(node: Node) -> Any:
    field = "name_hint" if "name_hint" in node.fields else "name"
    return ty.SymbolicDim(node.string(field), str(node.fields.get("dtype", "int32")))


@decodes("TupleType")
def tuple_type(node: Node) -> Step:
    fields = yield from node.ref("fields")
    return ty.TupleType(_all(fields, ty.Type, node, "fields"))


@decodes("FuncType")
def func_type(node: Node) -> Step:
    args = yield from node.ref("arg_types")
    ret = yield from node.ref("ret_type")
    params = yield from node.ref("type_params")
    return ty.FuncType(
        _all(args, ty.Type, node, "arg_types"),
        _is(ret, ty.Type, node, "ret_type"),
        _all(params, ty.TypeVar, node, "type_params"),
    )


@decodes("IncompleteType")
def incomplete_type(node: Node) -> Any:
    return ty.IncompleteType()


@decodes("TypeVar")
def type_var(node: Node) -> Any:
    return ty.TypeVar(node.string("name_hint"))


@decodes(
    "TypeCall", "GlobalTypeVar", "relay.TypeData", "TypeData", "Constructor", "relay.Match",
    "relay.Clause", "relay.RefCreate", "relay.RefRead", "relay.RefWrite", "RelayRefType",
)  # fmt: skip
def refused(node: Node) -> Any:
    raise UnsupportedOp(
        f"a {node.key}", "tensors, tuples, let, if and functions",
        "Algebraic data types and references are not supported",
    )  # fmt: skip


# ---- expressions


@decodes("relay.Id")
def identifier(node: Node) -> Any:
    return node.string("name_hint")


@decodes("relay.Var")
def var(node: Node) -> Step:
    name = yield from node.ref("vid")
    annotation = yield from node.ref("type_annotation")
    annotation = _is(annotation, (ty.Type, type(None)), node, "type_annotation")
    return ast.Var(_is(name, str, node, "vid"), annotation, span=(yield from _span(node)))


@decodes("GlobalVar")
def global_var(node: Node) -> Any:
    return ast.GlobalVar(node.string("name_hint"))


@decodes("Op")
def operator(node: Node) -> Any:
    name = node.raw.get("repr_str", node.raw.get("global_key", node.fields.get("name", "")))
    return ast.op(str(name))


@decodes("relay.Constant")
def constant(node: Node) -> Step:
    value = node.tensor("data")
    return ast.Constant(value, span=(yield from _span(node)))


@decodes("relay.Call")
def call(node: Node) -> Step:
    callee = _is((yield from node.ref("op")), ast.Expr, node, "op")
    args = _all((yield from node.ref("args")), ast.Expr, node, "args")
    attrs = _is((yield from node.ref("attrs")), (Attrs, type(None)), node, "attrs")
    if isinstance(callee, ast.Op) and attrs is None:
        attrs = make_attrs(callee.name, {})
    return ast.Call(callee, args, attrs, span=(yield from _span(node)))


@decodes("relay.Tuple")
def tuple_(node: Node) -> Step:
    fields = _all((yield from node.ref("fields")), ast.Expr, node, "fields")
    return ast.Tuple(fields, span=(yield from _span(node)))


@decodes("relay.TupleGetItem")
def tuple_get_item(node: Node) -> Step:
    field = "tuple_value" if "tuple_value" in node.fields else "tuple"
    value = _is((yield from node.ref(field)), ast.Expr, node, field)
    return ast.TupleGetItem(value, node.int("index"), span=(yield from _span(node)))


@decodes("relay.Let")
def let(node: Node) -> Step:
    variable = _is((yield from node.ref("var")), ast.Var, node, "var")
    value = _is((yield from node.ref("value")), ast.Expr, node, "value")
    body = _is((yield from node.ref("body")), ast.Expr, node, "body")
    return ast.Let(variable, value, body, span=(yield from _span(node)))


@decodes("relay.If")
def if_(node: Node) -> Step:
    parts = []
    for field in ("cond", "true_branch", "false_branch"):
        parts.append(_is((yield from node.ref(field)), ast.Expr, node, field))
    return ast.If(*parts, span=(yield from _span(node)))


@decodes("relay.Function")
def function(node: Node) -> Step:
    params = _all((yield from node.ref("params")), ast.Var, node, "params")
    body = _is((yield from node.ref("body")), ast.Expr, node, "body")
    ret = _is((yield from node.ref("ret_type")), (ty.Type, type(None)), node, "ret_type")
    type_params = _all((yield from node.ref("type_params")), ty.TypeVar, node, "type_params")
    attrs = _is((yield from node.ref("attrs")), (Attrs, type(None)), node, "attrs")
    span_ = yield from _span(node)
    return ast.Function(params, body, ret, type_params, dict(attrs or {}), span=span_)


@decodes("IRModule")
def module(node: Node) -> Step:
    functions = _is((yield from node.ref("functions")), dict, node, "functions")
    definitions = yield from node.ref("type_definitions")
    attrs = _is((yield from node.ref("attrs")), (Attrs, type(None)), node, "attrs")
    for key, value in functions.items():
        _is(key, ast.GlobalVar, node, "functions")
        _is(value, ast.Function, node, "functions")
    return IRModule(functions, definitions or {}, attrs)


# ---- attributes of calls


def decode_attrs(node: Node) -> Step:
    """Decode attributes of a class of the schema.

    A field that an old version did not have gets its default.
    """
    cls = attrs_class(node.key)
    if cls is None:
        raise RelaySyntaxError(f"attributes of class '{node.key[:64]}'", "a class of TVM 0.18")
    values: dict[str, Any] = {}
    for field in cls.fields:
        if field.name in node.fields:
            values[field.name] = yield from _attr(node, field)
        elif field.default is MANDATORY:
            node.text(field.name)  # raises
    try:
        return complete_attrs(cls, values, cls.name)
    except ConvoyError as error:
        raise RelaySyntaxError(error.got, error.expected, error.remedy) from None


def _attr(node: Node, field: Field) -> Step:
    kind = field.kind
    if kind == "int":
        return node.int(field.name)
    if kind == "bool":
        return node.text(field.name) not in ("0", "False", "false")
    if kind == "double":
        return _float(node.text(field.name), f"{node.key}.{field.name}")
    if kind == "dtype":
        return node.text(field.name)
    if kind in ("text", "string"):
        return node.string(field.name)
    value = yield from node.ref(field.name)
    return value.item() if isinstance(value, np.generic) else value
