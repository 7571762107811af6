"""Errors about what cannot be imported, which name the operator and the submodule that calls it."""

from __future__ import annotations

from collections.abc import Collection

import torch

from ..errors import UnsupportedOp

EXPECTED = "operators that can be imported from PyTorch"
PARTS = 'torch.compile(module, backend="convoy") compiles what it can and runs the rest eagerly.'
#: Attribute of the traced wrapper that holds the user's module.
WRAPPED = "function"


def check_known(graph: torch.fx.Graph, known: Collection[str]) -> None:
    """Raise UnsupportedOp for operators without a converter, each with one place that calls it."""
    missing: dict[str, str] = {}
    for node in graph.nodes:
        if node.op == "call_function" and node.target.__name__ not in known:
            missing.setdefault(node.target.__name__, called(node))
    if missing:
        raise UnsupportedOp(", ".join(missing.values()), EXPECTED, PARTS)


def refused(node: torch.fx.Node, err: Exception) -> UnsupportedOp:
    """What a converter raised, with the operator and its place."""
    if isinstance(err, UnsupportedOp):
        return UnsupportedOp(f"{err.got} ({called(node)})", err.expected, err.remedy or PARTS)
    return UnsupportedOp(f"{called(node)} ({type(err).__name__}: {err})", EXPECTED, PARTS)


def called(node: torch.fx.Node) -> str:
    """The operator of a node, and the submodule that calls it where there is one."""
    operator = f"the operator {node.target}"
    stack = node.meta.get("nn_module_stack") or {}
    path, kind = next(reversed(stack.values()), ("", ""))
    path = path.removeprefix(WRAPPED).removeprefix(".")
    kind = kind if isinstance(kind, str) else kind.__name__
    return f"{operator} in {path} ({kind.rpartition('.')[2]})" if path else operator
