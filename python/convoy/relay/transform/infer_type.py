"""InferType: write the types of all expressions."""

from __future__ import annotations

from convoy.relay.ast import Expr
from convoy.relay.infer import infer_module
from convoy.relay.infer.incremental import type_of
from convoy.relay.transform.base import FunctionPass, Pass, PassInfo, register_pass
from convoy.relay.types import Type


@register_pass
def InferType() -> Pass:
    """Infer types, writing them into the module itself."""
    return FunctionPass(PassInfo(0, "InferType"), infer_module)


def InferTypeLocal(expr: Expr) -> Type:
    """Infer the type of an expression; its free variables need annotations."""
    return type_of(expr)
