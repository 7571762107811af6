"""Decoders of expressions and modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from convoy.relay import ast
from convoy.relay import types as ty
from convoy.relay.adt import TypeData
from convoy.relay.attrs import Attrs
from convoy.relay.json_format.decoding import Step, decodes, expect, expect_all, span_of
from convoy.relay.json_format.earlier_versions import RENAMED, renewed_call
from convoy.relay.module import IRModule

if TYPE_CHECKING:
    from convoy.relay.json_format.reader import Node


@decodes("relay.Id")
def identifier(node: Node) -> Any:
    return node.string("name_hint")


@decodes("relay.Var")
def var(node: Node) -> Step:
    name = yield from node.ref("vid")
    annotation = yield from node.ref("type_annotation")
    annotation = expect(annotation, (ty.Type, type(None)), node, "type_annotation")
    return ast.Var(expect(name, str, node, "vid"), annotation, span=(yield from span_of(node)))


@decodes("GlobalVar")
def global_var(node: Node) -> Any:
    return ast.GlobalVar(node.string("name_hint"))


@decodes("Op")
def operator(node: Node) -> Any:
    name = node.raw.get("repr_str", node.raw.get("global_key", node.fields.get("name", "")))
    return ast.op(RENAMED.get(str(name), str(name)))


@decodes("relay.Constant")
def constant(node: Node) -> Step:
    value = node.tensor("data")
    return ast.Constant(value, span=(yield from span_of(node)))


@decodes("relay.Call")
def call(node: Node) -> Step:
    callee = expect((yield from node.ref("op")), ast.Expr, node, "op")
    args = expect_all((yield from node.ref("args")), ast.Expr, node, "args")
    attrs = expect((yield from node.ref("attrs")), (Attrs, type(None)), node, "attrs")
    if isinstance(callee, ast.Op):
        args, attrs = renewed_call(callee.name, args, attrs)
    return ast.Call(callee, args, attrs, span=(yield from span_of(node)))


@decodes("relay.Tuple")
def tuple_(node: Node) -> Step:
    fields = expect_all((yield from node.ref("fields")), ast.Expr, node, "fields")
    return ast.Tuple(fields, span=(yield from span_of(node)))


@decodes("relay.TupleGetItem")
def tuple_get_item(node: Node) -> Step:
    field = "tuple_value" if "tuple_value" in node.fields else "tuple"
    value = expect((yield from node.ref(field)), ast.Expr, node, field)
    return ast.TupleGetItem(value, node.int("index"), span=(yield from span_of(node)))


@decodes("relay.Let")
def let(node: Node) -> Step:
    variable = expect((yield from node.ref("var")), ast.Var, node, "var")
    value = expect((yield from node.ref("value")), ast.Expr, node, "value")
    body = expect((yield from node.ref("body")), ast.Expr, node, "body")
    return ast.Let(variable, value, body, span=(yield from span_of(node)))


@decodes("relay.If")
def if_(node: Node) -> Step:
    parts = []
    for field in ("cond", "true_branch", "false_branch"):
        parts.append(expect((yield from node.ref(field)), ast.Expr, node, field))
    return ast.If(parts[0], parts[1], parts[2], span=(yield from span_of(node)))


@decodes("relay.Function")
def function(node: Node) -> Step:
    params = expect_all((yield from node.ref("params")), ast.Var, node, "params")
    body = expect((yield from node.ref("body")), ast.Expr, node, "body")
    ret = expect((yield from node.ref("ret_type")), (ty.Type, type(None)), node, "ret_type")
    type_params = expect_all((yield from node.ref("type_params")), ty.TypeVar, node, "type_params")
    attrs = expect((yield from node.ref("attrs")), (Attrs, type(None)), node, "attrs")
    span_ = yield from span_of(node)
    return ast.Function(params, body, ret, type_params, dict(attrs or {}), span=span_)


@decodes("IRModule")
def module(node: Node) -> Step:
    functions = expect((yield from node.ref("functions")) or {}, dict, node, "functions")
    definitions = yield from node.ref("type_definitions")
    attrs = expect((yield from node.ref("attrs")), (Attrs, type(None)), node, "attrs")
    for key, value in functions.items():
        expect(key, ast.GlobalVar, node, "functions")
        expect(value, ast.Function, node, "functions")
    definitions = expect(definitions or {}, dict, node, "type_definitions")
    for value in definitions.values():
        expect(value, TypeData, node, "type_definitions")
    return IRModule(functions, definitions, attrs)
