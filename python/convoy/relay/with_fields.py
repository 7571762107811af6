"""Copies of expressions with some fields changed: TVM 0.18's `CallWithFields` and its like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from inspect import Parameter, Signature
from typing import Any

from convoy.errors import InvalidOption
from convoy.relay.ast import Var

#: A function of an expression and of its new fields.
Copier = Callable[..., Any]


def _copier(node: str, **fields: str) -> Copier:
    """Make a function that copies an expression with other fields.

    Args:
        node: The name of its first argument.
        fields: The fields of the expression by the arguments that set them.
    """
    names = [node, *fields, "virtual_device", "span"]
    kind = Parameter.POSITIONAL_OR_KEYWORD
    signature = Signature(
        [Parameter(name, kind, default=Parameter.empty if name == node else None) for name in names]
    )

    def copy(*args: Any, **named: Any) -> Any:
        """Return the expression with the fields that are not None, itself if nothing changes."""
        given = signature.bind(*args, **named).arguments
        if given.pop("virtual_device", None) is not None:
            raise InvalidOption(
                "a virtual_device",
                "None",
                "relay.annotation.on_device marks a value; a module runs on one device",
            )
        expr = given.pop(node)
        new = {fields.get(name, name): value for name, value in given.items() if value is not None}
        changed = {name: value for name, value in new.items() if value is not getattr(expr, name)}
        return replace(expr, **changed) if changed else expr

    copy.__signature__ = signature  # type: ignore[attr-defined]
    return copy


_rename = _copier("variable", name="name_hint", type_annotation="type_annotation")


def VarWithFields(
    variable: Var, vid: Var | None = None, *args: Any, **fields: Any
) -> Var:  # its identity is the variable itself
    """Return the variable with the name of `vid`, another type or place, as another variable."""
    name = None if vid is None or vid is variable else vid.name_hint
    renamed: Var = _rename(variable, name, *args, **fields)
    return renamed


ConstantWithFields = _copier("constant", data="value")
TupleWithFields = _copier("tup", fields="fields")
CallWithFields = _copier("call", op="op", args="args", attrs="attrs", type_args="type_args")
LetWithFields = _copier("let", variable="var", value="value", body="body")
IfWithFields = _copier(
    "if_expr", cond="cond", true_branch="true_branch", false_branch="false_branch"
)
TupleGetItemWithFields = _copier("tuple_get_item", tuple_value="tuple_value", index="index")
RefCreateWithFields = _copier("ref_create", value="value")
RefReadWithFields = _copier("ref_read", ref="ref")
RefWriteWithFields = _copier("ref_write", ref="ref", value="value")
FunctionWithFields = _copier(
    "function",
    params="params",
    body="body",
    ret_type="ret_type",
    ty_params="type_params",
    attrs="attrs",
)
