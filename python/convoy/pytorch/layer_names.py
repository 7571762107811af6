"""Name layers after the modules of PyTorch that they come from."""

from __future__ import annotations

from typing import Any

from torch.fx import Node
from tvm import relax

from ..normalize.name_layers import named


def name_layers(builder: Any, node: Node) -> None:
    """Have a ``relax.BlockBuilder`` give the convolutions and matmuls that it emits from now on the
    name of the module that a node is in."""
    plain = builder.plain_emit = getattr(builder, "plain_emit", builder.emit)
    layer = _module_of(node)

    def emit(expr: relax.Expr, name_hint: str = "") -> relax.Var:
        return plain(named(expr, layer), name_hint)

    builder.emit = emit


def _module_of(node: Node) -> str:
    """Path of the innermost module around a node, such as ``body.0``; "" for the outermost, which
    is ``function`` where :func:`convoy.compile` traces it."""
    stack: dict[str, Any] = node.meta.get("nn_module_stack") or {}
    path: str = next((name for name, _ in reversed(stack.values())), "")
    return "" if path == "function" else path.removeprefix("function.")
