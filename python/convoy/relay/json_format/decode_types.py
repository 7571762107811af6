"""Decoders of types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from convoy.errors import RelaySyntaxError
from convoy.relay import types as ty
from convoy.relay.json_format.decode_data_types import name_of
from convoy.relay.json_format.decoding import Step, decodes, expect, expect_all

if TYPE_CHECKING:
    from convoy.relay.json_format.reader import Node


@decodes("relay.TensorType")
def tensor_type(node: Node) -> Step:
    shape = yield from node.ref("shape")
    shape = expect_all(shape, (int, ty.Any, ty.SymbolicDim), node, "shape")
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
    return ty.TupleType(expect_all(fields, ty.Type, node, "fields"))


@decodes("FuncType")
def func_type(node: Node) -> Step:
    args = yield from node.ref("arg_types")
    ret = yield from node.ref("ret_type")
    params = yield from node.ref("type_params")
    return ty.FuncType(
        expect_all(args, ty.Type, node, "arg_types"),
        expect(ret, ty.Type, node, "ret_type"),
        expect_all(params, ty.TypeVar, node, "type_params"),
    )


@decodes("IncompleteType")
def incomplete_type(node: Node) -> Any:
    return ty.IncompleteType()


@decodes("TypeVar")
def type_var(node: Node) -> Step:
    name = yield from name_of(node)
    return ty.TypeVar(name, node.int("kind") if "kind" in node.fields else 0)
