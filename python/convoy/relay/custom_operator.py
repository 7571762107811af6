"""Operators of users: what `relay.op.register` makes, for passes and external compilers.

Such an operator has a name, arguments and a type relation. Convoy does not compile it: a pass, or a
code generator of the user's, takes it out of the network first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from convoy.errors import InvalidOption, RelayTypeError
from convoy.relay.ast import Op, define_op
from convoy.relay.ops import OPERATORS
from convoy.relay.ops.registry import Operator, TypeRule
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.schema import AttrsClass, OpSchema, define_schema, is_op, op_schema
from convoy.relay.types import Type

#: Takes the types of the arguments and the attributes; returns the type of the result.
Relation = Callable[[Sequence[Type], Any], Type | None]

# Operators that have TVM's relations of these names.
_RELATIONS = {"Identity": "copy", "Broadcast": "add", "BroadcastComp": "equal"}


@dataclass(frozen=True, eq=False, repr=False)
class CustomOp(Op):
    """An operator of a user's, with the methods that describe it."""

    def _redefine(self, inputs: Sequence[str], attrs: AttrsClass | None = None) -> None:
        define_schema(OpSchema(self.name, tuple(inputs), attrs))

    def set_num_inputs(self, n: int) -> None:
        """Set the number of arguments."""
        self._redefine([f"data_{i}" for i in range(n)])

    def add_argument(self, name: str, type: str, description: str) -> None:
        """Name an argument; type and description are for readers."""
        del type, description
        known = list(op_schema(self.name).inputs)
        placeholders = [i for i, n in enumerate(known) if n.startswith("data_")]
        if name in known:
            return
        if placeholders:
            known[placeholders[0]] = name
        else:
            known.append(name)
        self._redefine(known)

    def add_type_rel(self, rel_name: str, type_rel_func: Relation | None = None) -> None:
        """Set how the type of a call follows from those of its arguments.

        Args:
            rel_name: "Identity", "Broadcast" or "BroadcastComp"; with a function any name.
            type_rel_func: Takes the types of the arguments and the attributes, and returns the
                type of the result.

        Raises:
            InvalidOption: A relation that is not known.
        """
        if type_rel_func is None and rel_name not in _RELATIONS:
            raise InvalidOption(f"relation '{rel_name}'", ", ".join(_RELATIONS))
        found = OPERATORS.setdefault(self.name, Operator(self.name))
        if type_rel_func is not None:
            found.type_rule = _rule(self.name, type_rel_func)
        else:
            found.type_rule = OPERATORS[_RELATIONS[rel_name]].type_rule

    def set_attrs_type_key(self, key: str) -> None:
        """Accept the type of the attributes; calls may have attributes of any names."""

    def set_support_level(self, level: int) -> None:
        """Accept the level, which has no meaning here."""


def _rule(name: str, relation: Relation) -> TypeRule:
    def infer(call: Inputs) -> Type:
        types = [call.type(i) for i in range(len(call.call.args))]
        found = relation(types, call.call.attrs)
        if not isinstance(found, Type):
            raise RelayTypeError(f"{found!r} from the type relation of {name}", "a type")
        return found

    return infer


def register(op_name: str) -> CustomOp:
    """Make an operator of a new name.

    Raises:
        InvalidOption: An operator of this name exists.
    """
    if is_op(op_name):
        raise InvalidOption(f"Operator {op_name} is registered before", "a new name")
    define_schema(OpSchema(op_name, (), None))
    made = CustomOp(op_name)
    define_op(made)
    return made
