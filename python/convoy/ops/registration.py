"""Relax operators registered from Python: types, loops for any target, and a name in TVMScript."""

from __future__ import annotations

import types
from collections.abc import Callable

import tvm
from tvm import relax
from tvm.ir.op import register_op_attr

NAMESPACE = "relax.convoy."

Infer = Callable[[relax.Call, relax.BlockBuilder], tvm.ir.Type]
Legalize = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]


def register_op(
    name: str, description: str, infer: Infer, legalize: Legalize, make: Callable[..., relax.Call]
) -> None:
    """Register ``relax.convoy.<name>``, a pure operator with attributes kept as a dictionary.

    ``infer`` gives the type of a call, ``legalize`` its loops (what ``LegalizeOps`` puts in its
    place), ``make`` builds a call and is what ``R.convoy.<name>(...)`` runs when TVMScript is
    parsed. A second registration of the same name replaces the functions of the first.
    """
    full = NAMESPACE + name
    if full not in tvm.ir.Op.list_op_names():
        tvm.ir._ffi_api.RegisterOp(full, description)
    op = tvm.ir.Op.get(full)
    for key, value in (("FInferType", infer), ("FLegalize", legalize), ("FPurity", True)):
        if op.has_attr(key):
            op.reset_attr(key)
        register_op_attr(full, key, value)
    setattr(_script_namespace(), name, make)


def make_call(name: str, args: list[relax.Expr], **attrs: object) -> relax.Call:
    """A call of ``relax.convoy.<name>`` with its attributes; its type is not inferred yet."""
    return relax.Call(
        tvm.ir.Op.get(NAMESPACE + name), args, tvm.ir.make_node("ir.DictAttrs", **attrs)
    )


def _script_namespace() -> types.SimpleNamespace:
    """Namespace of ``R.convoy`` in TVMScript, whose parser looks names up in its own module."""
    from tvm.relax.script import parser

    if not hasattr(parser, "convoy"):
        parser.convoy = types.SimpleNamespace()
    return parser.convoy
