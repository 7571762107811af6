"""Decoding of the attributes of calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from convoy.errors import ConvoyError, RelaySyntaxError
from convoy.relay.attrs import complete_attrs
from convoy.relay.json_format.decoding import Step
from convoy.relay.json_format.earlier_versions import former_class, renewed_attrs
from convoy.relay.json_format.scalars import to_float
from convoy.relay.schema import MANDATORY, Field, attrs_class

if TYPE_CHECKING:
    from convoy.relay.json_format.reader import Node


def decode_attrs(node: Node) -> Step:
    """Decode attributes of a class of the schema, or of an earlier version's.

    A field that an old version did not have gets its default.
    """
    version = node.file.version
    cls = former_class(node.key, node.fields, version) or attrs_class(node.key)
    if cls is None:
        raise RelaySyntaxError(f"attributes of class '{node.key[:64]}'", "a class of TVM 0.18")
    values: dict[str, Any] = {}
    for field in cls.fields:
        if field.name in node.fields:
            values[field.name] = yield from _attr(node, field)
        elif field.default is MANDATORY:
            node.text(field.name)  # raises
    try:
        return renewed_attrs(complete_attrs(cls, values, cls.name), version)
    except ConvoyError as error:
        raise RelaySyntaxError(error.got, error.expected, error.remedy) from None


def _attr(node: Node, field: Field) -> Step:
    kind = field.kind
    if kind == "int":
        return node.int(field.name)
    if kind == "bool":
        return node.text(field.name) not in ("0", "False", "false")
    if kind == "double":
        return to_float(node.text(field.name), f"{node.key}.{field.name}")
    if kind == "dtype":
        return node.text(field.name)
    if kind in ("text", "string"):
        return node.string(field.name)
    value = yield from node.ref(field.name)
    return value.item() if isinstance(value, np.generic) else value
