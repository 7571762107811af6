"""Operators on bools as logical ones: for the CPU, TVM compares bools as if they were floats."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax
from tvm.relax import op

Emit = Callable[[relax.Expr], relax.Expr]
Rule = Callable[[Emit, relax.Call], relax.Expr]


def _pairwise(rule: Callable[[Emit, relax.Expr, relax.Expr], relax.Expr]) -> Rule:
    return lambda emit, call: rule(emit, *call.args)


def _reduction(reduce: Callable[..., relax.Expr]) -> Rule:
    """In int8: TVM knows no least or greatest bool."""

    def rewritten(emit: Emit, call: relax.Call) -> relax.Expr:
        number = emit(op.astype(call.args[0], "int8"))
        reduced = emit(reduce(number, call.attrs.axis, call.attrs.keepdims))
        return op.astype(reduced, "bool")

    return rewritten


_OR = _pairwise(lambda emit, a, b: op.logical_or(a, b))
_AND = _pairwise(lambda emit, a, b: op.logical_and(a, b))

#: By operator, what it is where its first operand is a bool.
OF_BOOLS: dict[str, Rule] = {
    "relax.equal": _pairwise(lambda emit, a, b: op.logical_not(emit(op.logical_xor(a, b)))),
    "relax.not_equal": _pairwise(lambda emit, a, b: op.logical_xor(a, b)),
    "relax.less": _pairwise(lambda emit, a, b: op.logical_and(emit(op.logical_not(a)), b)),
    "relax.less_equal": _pairwise(lambda emit, a, b: op.logical_or(emit(op.logical_not(a)), b)),
    "relax.greater": _pairwise(lambda emit, a, b: op.logical_and(a, emit(op.logical_not(b)))),
    "relax.greater_equal": _pairwise(lambda emit, a, b: op.logical_or(a, emit(op.logical_not(b)))),
    "relax.add": _OR,
    "relax.maximum": _OR,
    "relax.multiply": _AND,
    "relax.minimum": _AND,
    "relax.max": _reduction(op.max),
    "relax.min": _reduction(op.min),
}
