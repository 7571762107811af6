"""Operands of a quantized operator's call: scales, zero points, axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from convoy.relay import ast
from convoy.relay.ast import Call, Expr
from convoy.relay.ops.expansion_call import attrs_of, constant, type_of
from convoy.relay.ops.qnn_arithmetic import Scale
from convoy.relay.ops.registry import TypeRule
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.types import TensorType, Type


def constants(call: Call, args: Sequence[Expr], *positions: int) -> list[np.ndarray]:
    """Return scales and zero points, which must be constants."""
    return [constant(call, args[i], "a scale or zero point") for i in positions]


def scale_of(call: Call, args: Sequence[Expr], index: int) -> np.ndarray | Scale:
    """Return a scale or zero point: its value, or the expression that computes it."""
    value = args[index]
    if isinstance(value, ast.Constant):
        return value.value
    return Scale(value, type_of(call, index))


def axis_of(call: Call) -> int:
    """Return the axis of scales per channel."""
    return int(attrs_of(call).get("axis", -1))


def result_of(call: Call) -> TensorType:
    """Return the type of the result."""
    found = call.checked_type
    assert isinstance(found, TensorType)
    return found


def infer_plain(call: Inputs, count: int, rule: TypeRule) -> Type:
    """Apply the rule of the operator on real numbers to the first `count` arguments."""
    inner = Inputs(call.call, call.types[:count])
    result = rule(inner)
    call.assigned.update(inner.assigned)
    return result
