"""What the functions of a plan can read and write in wider tensors."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.candidate import Decline
from ..ir.plan import Plan
from .base import Backend


def sliceable_operands(plan: Plan, backends: Mapping[str, Backend]) -> dict[str, frozenset[int]]:
    """Places in a call (outputs last) of the operands of a plan's functions that may be slices;
    only of functions with one output, and of those whose backend takes slices."""
    found: dict[str, frozenset[int]] = {}
    for symbol, choice in plan.functions().items():
        workload, candidate = choice.workload, choice.chosen.candidate
        backend = backends.get(candidate.backend)
        if backend is None or workload.num_outputs != 1:
            continue
        names = backend.sliceable(workload, candidate, plan.device)
        if not isinstance(names, Decline):
            operands = [name for name, _, _ in workload.operand_shapes()]
            found[symbol] = frozenset(i for i, name in enumerate(operands) if name in names)
    return found


def by_operand(plan: Plan, strides: Mapping[str, Mapping[int, int]]) -> dict[str, dict[str, int]]:
    """Row strides by function and name of the operand, from those by place in the call."""
    functions = plan.functions()
    found: dict[str, dict[str, int]] = {}
    for symbol, places in strides.items():
        names = [name for name, _, _ in functions[symbol].workload.operand_shapes()]
        found[symbol] = {names[place]: row for place, row in places.items()}
    return found
