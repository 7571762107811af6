"""The operators of Relay and the fields of their attribute classes, from `schema.json`.

`schema.json` is interface data of TVM 0.18: for each attribute class its fields in the order of
declaration as `[name, kind, default]` (no default: the field is mandatory in text), and for each
operator `[inputs, attribute class, class its helper makes where that is another one]`.

The kind determines how a field is written in `save_json` files:

    int bool double dtype   the value as a string
    text                    std::string: the string itself
    string                  tvm::String: the index of a string node
    expr                    IntImm or None: the index of a node
    array, floats           array (of arrays) of IntImm or FloatImm: the index of a node
    box                     boxed int, or array of them
    relay, object           any other node
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any

from convoy.errors import UnsupportedOp
from convoy.relay.source import nearest

MANDATORY = object()


@dataclass(frozen=True)
class Field:
    """One field of an attribute class; `default is MANDATORY` where C++ has none."""

    name: str
    kind: str
    default: Any = MANDATORY


@dataclass(frozen=True)
class AttrsClass:
    """An attribute class, `Conv2DAttrs`; its type key in files is `relay.attrs.Conv2DAttrs`."""

    name: str
    fields: tuple[Field, ...]

    @property
    def type_key(self) -> str:
        """The type key in files."""
        return f"relay.attrs.{self.name}"

    @cached_property
    def field_names(self) -> tuple[str, ...]:
        """The names of the fields, in order."""
        return tuple(f.name for f in self.fields)


@dataclass(frozen=True)
class OpSchema:
    """An operator.

    Attributes:
        inputs: The names of its tensor inputs.
        attrs: The class of its attributes, None if it takes none.
        printed: Whether attributes are printed as `name=value`. Otherwise TVM prints them as
            `meta[...]`, because they are not of the class that the operator is registered with.
    """

    name: str
    inputs: tuple[str, ...]
    attrs: AttrsClass | None
    printed: bool = True


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


@lru_cache(maxsize=1)
def _load() -> tuple[dict[str, AttrsClass], dict[str, OpSchema]]:
    raw = json.loads(files(__package__).joinpath("schema.json").read_text("utf-8"))
    classes = {
        name: AttrsClass(name, tuple(Field(f[0], f[1], *map(_frozen, f[2:])) for f in fields))
        for name, fields in raw["attrs"].items()
    }
    ops = {}
    for name, (inputs, registered, *made) in raw["ops"].items():
        cls = made[0] if made else registered
        ops[name] = OpSchema(name, tuple(inputs), classes.get(cls), printed=not made)
    return classes, ops


def op_names() -> tuple[str, ...]:
    """Return every operator that TVM 0.18 knows."""
    return tuple(_load()[1])


def op_schema(name: str) -> OpSchema:
    """Return the schema of an operator.

    Raises:
        UnsupportedOp: Relay has no operator of this name; the message suggests the nearest ones.
    """
    found = _load()[1].get(name)
    if found is None:
        raise UnsupportedOp(f"'{name}' is not a Relay operator", remedy=nearest(name, op_names()))
    return found


def is_op(name: str) -> bool:
    """Check for the name of an operator."""
    return name in _load()[1]


def define_schema(schema: OpSchema) -> None:
    """Add an operator of a user's, or describe it anew."""
    _load()[1][schema.name] = schema


def attrs_class(name: str) -> AttrsClass | None:
    """Return the attribute class of a name or a type key (`relay.attrs.Conv2DAttrs`), or None."""
    return _load()[0].get(name.removeprefix("relay.attrs."))
