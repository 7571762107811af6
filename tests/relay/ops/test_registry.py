"""The registry of operators."""

from __future__ import annotations

import pytest

from convoy import relay
from convoy.relay.convert import supported_ops
from convoy.relay.ops import OPERATORS, builders
from convoy.relay.schema import op_names


def test_every_converter_has_a_type_rule() -> None:
    rules = {name for name, operator in OPERATORS.items() if operator.type_rule}
    assert set(supported_ops()) <= rules
    # TVM has no implementation of the second one either.
    assert rules - set(supported_ops()) <= {"hardswish", "vision.regular_non_max_suppression"}


@pytest.mark.parametrize("name", ["nn.conv2d", "add"])
def test_supported_ops_lists(name: str) -> None:
    assert name in supported_ops()


def test_operators_are_those_of_the_schema() -> None:
    assert set(OPERATORS) <= set(op_names())


@pytest.mark.parametrize(
    ("namespace", "module"),
    [
        ("", relay.op.tensor),
        ("", relay),
        ("nn", relay.nn),
        ("image", relay.image),
        ("vision", relay.vision),
        ("annotation", relay.annotation),
        ("qnn", relay.qnn.op),
    ],
)
def test_builders_are_public(namespace: str, module: object) -> None:
    found = builders(namespace)
    assert found
    for name, builder in found.items():
        assert getattr(module, name) is builder
        assert builder.__name__ == name
        assert builder.__doc__


def test_a_second_implementation_is_refused() -> None:
    from convoy.relay.ops.registry import converter

    with pytest.raises(ValueError, match=r"nn\.conv2d has a converter already"):
        converter("nn.conv2d")(lambda op: op)
