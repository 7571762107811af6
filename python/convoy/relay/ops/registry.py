"""The registry of Relay's operators.

A family module, `ops/<family>.py`, registers for each of its operators

- the builder that users call (`@builder("nn.conv2d")` becomes `relay.nn.conv2d`),
- the type rule (`@type_rule("nn.conv2d")`), which `relay.infer` applies,
- its lowering: a converter to Relax (`@converter("nn.conv2d")`), or an expansion into other Relay
  operators (`@expansion("qnn.conv2d")`), which `relay.convert` applies; or, where sizes depend on
  values (`@on_host("argwhere")`), a numpy function, which `relay.tracing` calls.

Names, inputs and attributes of all operators of TVM 0.18 come from `schema.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from convoy.relay.ast import Call, Expr
from convoy.relay.types import Type

if TYPE_CHECKING:
    from convoy.relay.ops.relax_call import OpCall
    from convoy.relay.ops.type_inputs import Inputs

Builder = Callable[..., Any]
TypeRule = Callable[["Inputs"], Type]
Converter = Callable[["OpCall"], Any]  # to a relax.Expr
# Takes the call, with inferred types, and its arguments after expansion.
Expansion = Callable[[Call, Sequence[Expr]], Expr]
# Takes the call and the values of its arguments; returns one array, or several of a tuple.
HostFunction = Callable[..., Any]

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass
class Operator:
    """The implementation of one operator.

    Attributes:
        name: The operator, such as "nn.conv2d".
        type_rule: Infers the type of a call.
        converter: Emits the Relax expression of a call.
        expansion: Rewrites a call into other Relay operators, before conversion.
        on_host: Computes the result with numpy, where its size depends on values.
        shape_arguments: Positions of arguments whose values determine the result's shape.
    """

    name: str
    type_rule: TypeRule | None = None
    converter: Converter | None = None
    expansion: Expansion | None = None
    on_host: HostFunction | None = None
    shape_arguments: tuple[int, ...] = ()

    @property
    def is_supported(self) -> bool:
        """Whether `relay.build` can compile the operator."""
        return any(f is not None for f in (self.converter, self.expansion, self.on_host))


OPERATORS: dict[str, Operator] = {}
# Builders by namespace ("" is `relay` itself, "nn" is `relay.nn`) and name.
_BUILDERS: dict[str, dict[str, Builder]] = {}


def builder(path: str) -> Callable[[_F], _F]:
    """Register the function that users call as `relay.<path>`.

    Args:
        path: The public name, with its namespace: "reshape", "nn.conv2d". It differs from the
            operator's name where it does so in TVM 0.18 (`contrib_reverse_reshape`).
    """
    namespace, _, name = path.rpartition(".")

    def register(function: _F) -> _F:
        _BUILDERS.setdefault(namespace, {})[name] = function
        return function

    return register


def builders(namespace: str) -> dict[str, Builder]:
    """Return the builders of a namespace by name."""
    return dict(_BUILDERS.get(namespace, {}))


def type_rule(*names: str) -> Callable[[_F], _F]:
    """Register the type rule of operators."""
    return _registering("type_rule", names)


def converter(*names: str) -> Callable[[_F], _F]:
    """Register the converter to Relax of operators."""
    return _registering("converter", names)


def expansion(*names: str) -> Callable[[_F], _F]:
    """Register the expansion of operators into other Relay operators."""
    return _registering("expansion", names)


def on_host(*names: str) -> Callable[[_F], _F]:
    """Register the numpy function of operators whose results' sizes depend on values."""
    return _registering("on_host", names)


def shape_arguments(name: str, *positions: int) -> None:
    """Register which arguments' values determine the shape of an operator's result."""
    OPERATORS.setdefault(name, Operator(name)).shape_arguments = positions


def _registering(field: str, names: Sequence[str]) -> Callable[[_F], _F]:
    def register(function: _F) -> _F:
        for name in names:
            operator = OPERATORS.setdefault(name, Operator(name))
            if getattr(operator, field) is not None:
                raise ValueError(f"{name} has a {field} already")
            setattr(operator, field, function)
        return function

    return register
