"""Computations of users' operators: tensor expressions of `register_compute` and strategies.

Schedules that are registered beside them have no effect: TVM schedules the loops.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from convoy.errors import InvalidOption
from convoy.relay.ast import op as get
from convoy.relay.custom_operator import CustomOp
from convoy.relay.lazy import tvm
from convoy.relay.ops import OPERATORS
from convoy.relay.ops.registry import Operator
from convoy.relay.ops.relax_call import OpCall
from convoy.relay.types import TupleType

#: Takes the attributes, the inputs as tensor expressions and the type of the result; returns
#: tensor expressions.
Compute = Callable[[Any, Sequence[Any], Any], Any]


@dataclass
class OpStrategy:
    """The ways to compute an operator; that of the highest level counts."""

    computes: list[tuple[int, Compute]] = field(default_factory=list)

    def add_implementation(
        self, compute: Compute, schedule: Any = None, name: str = "default", plevel: int = 10
    ) -> None:
        """Add a way to compute; its schedule has no effect."""
        del schedule, name
        self.computes.append((plevel, compute))

    def __call__(self, attrs: Any, inputs: Sequence[Any], out_type: Any) -> Any:
        if not self.computes:
            raise InvalidOption("a strategy without an implementation", "add_implementation")
        return max(self.computes, key=lambda pair: pair[0])[1](attrs, inputs, out_type)


def register_compute(op_name: str, compute: Compute | None = None, level: int = 10) -> Any:
    """Register what an operator of `relay.op.register` computes; without it return a decorator.

    Args:
        op_name: The operator. One of Relay's own keeps its kernels, and a warning says so.
        compute: Takes attributes, inputs as tensor expressions, and the type of the result.
        level: Accepted; the latest counts.
    """
    del level

    def register(found: Compute) -> Compute:
        if not isinstance(get(op_name), CustomOp):
            warnings.warn(
                f"{op_name} is computed by Convoy's and TVM's kernels; what is registered for it "
                "has no effect",
                stacklevel=3,
            )
            return found
        OPERATORS.setdefault(op_name, Operator(op_name)).converter = _converter(found)
        return found

    return register if compute is None else register(compute)


def register_strategy(op_name: str, fstrategy: Any = None, level: int = 10) -> Any:
    """Register a function `(attrs, inputs, out_type, target)` that makes an OpStrategy; see
    `register_compute`."""

    def register(found: Any) -> Any:
        def compute(attrs: Any, inputs: Sequence[Any], out_type: Any) -> Any:
            target = tvm.target.Target.current(allow_none=True) or tvm.target.Target("llvm")
            return found(attrs, inputs, out_type, target)(attrs, inputs, out_type)

        register_compute(op_name, compute, level)
        return found

    return register if fstrategy is None else register(fstrategy)


def register_schedule(op_name: str, schedule: Any = None, level: int = 10) -> Any:
    """Accept a schedule, which has no effect; without one return a decorator."""
    del op_name, level
    return (lambda found: found) if schedule is None else schedule


def _converter(compute: Compute) -> Callable[[OpCall], Any]:
    def convert(call: OpCall) -> Any:
        inputs: list[Any] = []
        for i, argument in enumerate(call.args):
            is_tuple = isinstance(call.call.args[i].checked_type, TupleType)
            inputs += call.unpack(i) if is_tuple else [argument]

        def expression(*tensors: Any) -> Any:
            found = compute(call.attrs, list(tensors), call.result)
            single = not isinstance(call.result, TupleType)
            return found[0] if single and not isinstance(found, tvm.te.Tensor) else found

        return call.te(expression, *inputs)

    return convert
