"""Pickles and copies of Relay nodes: their JSON, which has no limit of depth, and their types."""

from __future__ import annotations

import copyreg
from collections.abc import Iterator, Sequence
from typing import Any

from convoy.relay import adt, ast
from convoy.relay.ast import Expr
from convoy.relay.json_format.reader import load_json
from convoy.relay.json_format.writer import save_json
from convoy.relay.module import IRModule
from convoy.relay.types import Type
from convoy.relay.visit import post_order


def _reduce(node: Any) -> tuple[Any, tuple[str, Sequence[Type | None]]]:
    return _restored, (save_json(node), [n.checked_type_ for n in _nodes(node)])


def _restored(text: str, types: Sequence[Type | None]) -> Any:
    node = load_json(text)
    for inner, type_ in zip(_nodes(node), types, strict=True):
        object.__setattr__(inner, "checked_type_", type_)
    return node


def _nodes(node: Any) -> Iterator[Expr]:
    """Yield the expressions of a module or an expression, in an order that files keep."""
    for root in [node[name] for name in sorted(node)] if isinstance(node, IRModule) else [node]:
        yield from post_order(root)


for _cls in (
    IRModule, ast.Call, ast.Constant, ast.Function, ast.GlobalVar, ast.If, ast.Let, ast.Op,
    ast.Tuple, ast.TupleGetItem, ast.Var, adt.Match, adt.RefCreate, adt.RefRead, adt.RefWrite,
):  # fmt: skip
    copyreg.pickle(_cls, _reduce)
