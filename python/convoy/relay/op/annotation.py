"""`relay.annotation`: marks without an effect on values."""

from __future__ import annotations

from typing import Any

from convoy.relay.ast import Call, Expr
from convoy.relay.op.call import call


def stop_fusion(data: Expr) -> Call:
    return call("annotation.stop_fusion", data)


def compiler_begin(data: Expr, compiler: str) -> Call:
    return call("annotation.compiler_begin", data, compiler=compiler)


def compiler_end(data: Expr, compiler: str) -> Call:
    return call("annotation.compiler_end", data, compiler=compiler)


def checkpoint(data: Expr) -> Call:
    return call("annotation.checkpoint", data)


def on_device(body: Expr, device: Any = None, **constraints: Any) -> Expr:
    """The body: there is one device."""
    del device, constraints
    return body
