"""Structural hashes: equal for all that `equality.structural_equal` holds equal."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from convoy.relay import adt, ast
from convoy.relay.ast import Expr, Function, Var
from convoy.relay.module import IRModule
from convoy.relay.types import (
    FuncType,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
)
from convoy.relay.visit import children, free_vars, post_order


def structural_hash(node: Any, map_free_vars: bool = False) -> int:
    """Return a 64-bit hash of a module, an expression or a type.

    It is the same in every process, unless the expression has free variables that are not mapped.

    Args:
        node: The module, expression or type.
        map_free_vars: Whether free variables count by their place; else each is its own.
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in _parts(node, map_free_vars):
        digest.update(part.encode() if isinstance(part, str) else part)
        digest.update(b"\0")
    return int.from_bytes(digest.digest(), "little")


def _parts(node: Any, map_free_vars: bool) -> list[str | bytes]:
    if isinstance(node, IRModule):
        found: list[str | bytes] = []
        for name in sorted(node):
            found += [name, str(structural_hash(node[name]))]
        return [*found, *sorted(map(str, node.type_definitions))]
    if isinstance(node, Expr):
        return _of_expression(node, map_free_vars)
    if isinstance(node, Type):
        return [_type(node)]
    return [repr(node)]


def _of_expression(root: Expr, map_free_vars: bool) -> list[str | bytes]:
    """Describe nodes in order, with the numbers of their parts."""
    free = set() if map_free_vars else set(free_vars(root))
    functions = (n for n in post_order(root) if isinstance(n, Function) and n.type_params)
    params = tuple(p for function in functions for p in function.type_params)
    number: dict[int, int] = {}
    found: list[str | bytes] = []
    for node in post_order(root):
        if isinstance(node, (ast.Op, ast.GlobalVar, ast.Constant, adt.Constructor)):
            continue  # sharing them has no meaning
        number[id(node)] = len(number)
        found.append(type(node).__name__)
        found += [str(id(node))] if node in free else _content(node, params)
        for child in children(node):
            if id(child) in number:
                found.append(str(number[id(child)]))
            else:
                found += _content(child, params)
    return found or _content(root, params)


def _content(node: Expr, params: tuple[Type, ...]) -> list[str | bytes]:
    if isinstance(node, Var):
        declared = node.type_annotation
        absent = declared is None or isinstance(declared, IncompleteType)
        return [_type(node.checked_type_ if absent else declared, params)]
    if isinstance(node, ast.Op):
        return [node.name]
    if isinstance(node, (ast.GlobalVar, adt.Constructor)):
        return [node.name_hint]
    if isinstance(node, ast.Constant):
        return [node.value.dtype.name, str(node.value.shape), node.value.tobytes()]
    if isinstance(node, ast.TupleGetItem):
        return [str(node.index)]
    if isinstance(node, Function):
        return [str(len(node.type_params)), *_attributes(node.attrs)]
    if isinstance(node, ast.Call):
        return _attributes(node.attrs)
    return []


def _attributes(attrs: Mapping[str, Any] | None) -> list[str | bytes]:
    found: list[str | bytes] = [getattr(attrs, "type_key", "")] if attrs else []
    for key in sorted(attrs or {}):
        found += [key, _value((attrs or {})[key])]
    return found


def _value(value: Any) -> str:
    if isinstance(value, Expr):
        return str(structural_hash(value))
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (tuple, list)):
        return f"({','.join(map(_value, value))})"
    if isinstance(value, Mapping):
        return str(_attributes(value))
    return str(value)


def _type(found: Any, params: tuple[Type, ...] = ()) -> str:
    """Describe a type; type parameters are numbered."""
    if isinstance(found, TypeVar) and found in params:
        return f"#{params.index(found)}"
    if isinstance(found, TensorType):
        return f"{found.dtype}{[d if isinstance(d, int) else None for d in found.shape]}"
    if isinstance(found, TupleType):
        return f"({', '.join(_type(f, params) for f in found.fields)})"
    if isinstance(found, FuncType):
        params += found.type_params
        args = ", ".join(_type(a, params) for a in found.arg_types)
        return f"fn{len(found.type_params)}({args}) {_type(found.ret_type, params)}"
    if isinstance(found, TypeCall):
        return f"{_type(found.func, params)}[{', '.join(_type(a, params) for a in found.args)}]"
    if isinstance(found, RefType):
        return f"ref {_type(found.value, params)}"
    return "" if found is None else repr(found)
