"""Writing files that TVM 0.18's `tvm.ir.load_json` reads."""

from __future__ import annotations

import json
from collections.abc import Generator, Hashable, Mapping
from typing import Any

from convoy.errors import RelayTypeError
from convoy.relay import ast
from convoy.relay import types as ty
from convoy.relay.adt import Clause, Pattern
from convoy.relay.attrs import Attrs, Int64
from convoy.relay.json_format.describe_data_types import describe_data_expr, describe_data_type
from convoy.relay.json_format.fields import ANYWHERE, Data, Fields, Raw
from convoy.relay.json_format.tensor_bytes import encode_base64
from convoy.relay.module import IRModule
from convoy.relay.schema import Field
from convoy.relay.trampoline import run
from convoy.relay.virtual_device import VirtualDevice

TVM_VERSION = "0.18.0"
Step = Generator[Any, Any, int]


def save_json(node: IRModule | ast.Expr | ty.Type) -> str:
    """Write a module, an expression or a type as a `save_json` file; return its text."""
    if not isinstance(node, (IRModule, ast.Expr, ty.Type)):
        raise RelayTypeError(f"a {type(node).__name__}", "a module, an expression or a type")
    return _Writer().file(node)


def save_metadata(table: Mapping[str, list[Any]]) -> str:
    """Write the `#[metadata]` section of a text.

    Args:
        table: Objects by type key. Integers of `runtime.BoxInt` are written boxed.
    """
    return _Writer().file(_Table(table))


class _Table:
    def __init__(self, table: Mapping[str, list[Any]]) -> None:
        self.table = table


class _Box(int):
    """An integer to be written boxed."""


class _Writer:
    """Write nodes, numbered in pre-order as in TVM."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = [{"type_key": ""}]
        self.arrays: list[str] = []
        self.index: dict[Hashable, int] = {}
        self.kept: list[Any] = []  # keeps alive what `index` knows by id

    def file(self, root: Any) -> str:
        """Write a root and all that it refers to."""
        index = run(self.ref(root))
        data = {
            "root": index,
            "nodes": self.nodes,
            "b64ndarrays": self.arrays,
            "attrs": {"tvm_version": TVM_VERSION},
        }
        return json.dumps(data, indent=2)

    def ref(self, value: Any) -> Any:
        """Return the index of a value's node, which is written the first time."""
        if value is None:
            return 0
        key = self._identity(value)
        if key is not None and key in self.index:
            return self.index[key]
        return self._write(value, key)

    @staticmethod
    def _identity(value: Any) -> Hashable | None:
        """Return what two occurrences of one node have in common; None for nodes never shared."""
        if isinstance(value, ast.Op):
            return ("op", value.name)
        if isinstance(value, ast.GlobalVar):
            return ("global", value.name_hint)
        if isinstance(value, (ty.Type, VirtualDevice)):
            return value
        if isinstance(value, (ast.Expr, Attrs, Clause, Pattern)):
            return id(value)
        return None

    def _new(self, key: Hashable | None, value: Any, type_key: str) -> tuple[int, dict[str, Any]]:
        node: dict[str, Any] = {"type_key": type_key}
        self.nodes.append(node)
        index = len(self.nodes) - 1
        if key is not None:
            self.index[key] = index
            self.kept.append(value)
        return index, node

    def _write(self, value: Any, key: Hashable | None) -> Step:
        if isinstance(value, str):
            index, node = self._new(key, value, "runtime.String")
            if value:
                node["repr_str"] = value
            return index
        if isinstance(value, (list, tuple)):
            index, node = self._new(key, value, "Array")
            items = []
            for item in value:
                items.append((yield self.ref(item)))
            if items:
                node["data"] = items
            return index
        if isinstance(value, (dict, _Table)):
            return (yield self._map(value.table if isinstance(value, _Table) else value, key))
        if isinstance(value, _Box):
            index, node = self._new(key, value, "runtime.BoxInt")
            node["repr_str"] = str(int(value))
            return index
        type_key, fields = _describe(value)
        index, node = self._new(key, value, type_key)
        if type_key == "Op":
            node["repr_str"] = value.name
            return index
        attrs: dict[str, str] = {}
        for name, content in fields:
            if isinstance(content, Raw):
                attrs[name] = content
            elif isinstance(content, Data):
                self.arrays.append(encode_base64(content.value))
                attrs[name] = str(len(self.arrays) - 1)
            else:
                attrs[name] = str((yield self.ref(content)))
        node["attrs"] = dict(sorted(attrs.items()))
        return index

    def _map(self, value: Mapping[Any, Any], key: Hashable | None) -> Step:
        index, node = self._new(key, value, "Map")
        strings = all(isinstance(k, str) for k in value)
        if strings and value:
            node["keys"] = list(value)
        data = []
        for k, v in value.items():
            if not strings:
                data.append((yield self.ref(k)))
            boxed = strings and k == "runtime.BoxInt"
            data.append((yield self.ref([_Box(i) for i in v] if boxed else v)))
        if data:
            node["data"] = data
        return index


def _describe(value: Any) -> tuple[str, Fields]:
    """Return the type key of a node and its fields, in TVM's order."""
    if isinstance(value, bool):
        return "IntImm", _number("bool", str(int(value)))
    if isinstance(value, int):
        wide = isinstance(value, Int64) or not -(2**31) <= value < 2**31
        return "IntImm", _number("int64" if wide else "int32", str(int(value)))
    if isinstance(value, float):
        return "FloatImm", _number("float32", _double(value))
    if isinstance(value, VirtualDevice):
        return "VirtualDevice", [
            ("device_type_int", Raw(value.device_type_int)),
            ("virtual_device_id", Raw(value.virtual_device_id)),
            ("target", None),
            ("memory_scope", value.memory_scope),
        ]
    if isinstance(value, Attrs):
        if value.cls is None:
            return "DictAttrs", [("__dict__", dict(value))]
        return value.type_key, [(f.name, _attr(f, value[f.name])) for f in value.cls.fields]
    data_type = describe_data_type(value)
    if data_type is not None:
        return data_type
    if isinstance(value, ty.Type):
        return _describe_type(value)
    if isinstance(value, ty.Any):
        return "tir.Any", [("dtype", Raw("int32")), ("span", None)]
    if isinstance(value, ty.SymbolicDim):
        fields: Fields = [("name", value.name), ("dtype", Raw(value.dtype))]
        return "tir.SizeVar", [*fields, ("type_annotation", None), ("span", None)]
    if isinstance(value, IRModule):
        return "IRModule", _module(value)
    if isinstance(value, _Id):
        return "relay.Id", [("name_hint", str(value.name))]
    if isinstance(value, ast.Expr):
        return _describe_expr(value)
    raise RelayTypeError(f"a {type(value).__name__} in a module", "values that can be saved")


def _number(dtype: str, text: str) -> Fields:
    return [("dtype", Raw(dtype)), ("value", Raw(text)), ("span", None)]


def _double(value: float) -> str:
    return f"{value:.17g}"


def _attr(field: Field, value: Any) -> Any:
    """Return the content of a field of an attribute class."""
    if field.kind == "bool":
        return Raw(int(bool(value)))
    if field.kind == "double":
        return Raw(_double(value))
    if field.kind in ("int", "dtype", "text"):
        return Raw(value)
    if field.kind == "box":
        return [_Box(v) for v in value] if isinstance(value, tuple) else _Box(value)
    return value


def _describe_type(value: ty.Type) -> tuple[str, Fields]:
    end: Fields = [("span", None)]
    if isinstance(value, ty.TensorType):
        return "relay.TensorType", [("shape", value.shape), ("dtype", Raw(value.dtype)), *end]
    if isinstance(value, ty.TupleType):
        return "TupleType", [("fields", value.fields), *end]
    if isinstance(value, ty.FuncType):
        return "FuncType", [
            ("arg_types", value.arg_types),
            ("ret_type", value.ret_type),
            ("type_params", value.type_params),
            ("type_constraints", ()),
            *end,
        ]
    if isinstance(value, ty.TypeVar):
        return "TypeVar", [("name_hint", value.name_hint), ("kind", Raw(value.kind)), *end]
    return "IncompleteType", [("kind", Raw(0)), *end]


class _Id:
    """The identity of a variable."""

    def __init__(self, name: str) -> None:
        self.name = name


def _describe_expr(value: ast.Expr) -> tuple[str, Fields]:
    end: Fields = [
        ("virtual_device_", ANYWHERE),
        ("span", None),
        ("_checked_type_", value.checked_type_),
    ]
    if isinstance(value, ast.Op):
        return "Op", []
    if isinstance(value, ast.Var):
        annotation = value.type_annotation or value.checked_type_
        return "relay.Var", [("vid", _Id(value.name_hint)), ("type_annotation", annotation), *end]
    if isinstance(value, ast.GlobalVar):
        name = ("name_hint", value.name_hint)
        return "GlobalVar", [name, ("virtual_device_", None), *end[1:], ("struct_info_", None)]
    if isinstance(value, ast.Constant):
        return "relay.Constant", [("data", Data(value.value)), *end]
    if isinstance(value, ast.Call):
        head: Fields = [("op", value.op), ("args", value.args), ("attrs", value.attrs)]
        return "relay.Call", [*head, ("type_args", _type_args(value)), *end]
    if isinstance(value, ast.Tuple):
        return "relay.Tuple", [("fields", value.fields), *end]
    if isinstance(value, ast.TupleGetItem):
        index = Raw(value.index)
        return "relay.TupleGetItem", [("tuple_value", value.tuple_value), ("index", index), *end]
    if isinstance(value, ast.Let):
        return "relay.Let", [("var", value.var), ("value", value.value), ("body", value.body), *end]
    if isinstance(value, ast.If):
        branches = [(f, getattr(value, f)) for f in ("cond", "true_branch", "false_branch")]
        return "relay.If", [*branches, *end]
    data = describe_data_expr(value, end)
    if data is not None:
        return data
    assert isinstance(value, ast.Function)
    return "relay.Function", _function(value, end)


def _type_args(call: ast.Call) -> Any:
    """Return the types of an operator's arguments, which TVM's inference leaves in the call."""
    types = [a.checked_type_ for a in call.args]
    if call.type_args or not isinstance(call.op, ast.Op) or None in types:
        return call.type_args
    return types


def _function(value: ast.Function, end: Fields) -> Fields:
    ret = value.ret_type
    if ret is None and isinstance(value.checked_type_, ty.FuncType):
        ret = value.checked_type_.ret_type
    return [
        ("params", value.params),
        ("body", value.body),
        ("ret_type", ret),
        ("type_params", value.type_params),
        ("attrs", Attrs(None, value.attrs or {})),
        *end,
    ]


def _module(value: IRModule) -> Fields:
    names = {name: value.get_global_var(name) for name in value}
    types = {header.name_hint: header for header in value.type_definitions}
    return [
        ("functions", value.functions),
        ("type_definitions", dict(value.type_definitions)),
        ("global_var_map_", names),
        ("global_type_var_map_", types),
        ("source_map", None),
        ("attrs", Attrs(None, value.attrs)),
        ("global_infos", {}),
    ]
