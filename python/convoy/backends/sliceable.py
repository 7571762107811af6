"""Operands that the functions of a plan can read and write in wider tensors."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..ir.candidate import Candidate, Decline
from ..ir.device import Device
from ..ir.plan import Plan
from ..ir.workload import Workload
from .base import Backend

#: "0" copies the parts of concatenations, and slices, in the following builds.
VARIABLE = "CONVOY_IN_PLACE"


def wanted() -> bool:
    """Return whether networks that are built now may write concatenations, and read slices, in
    place."""
    return os.environ.get(VARIABLE, "1") != "0"


def sliceable_operands(plan: Plan, backends: Mapping[str, Backend]) -> dict[str, frozenset[int]]:
    """Places in a call (outputs last) of the operands of a plan's functions that may be slices, of
    those functions that have any."""
    found: dict[str, frozenset[int]] = {}
    for symbol, choice in plan.functions().items():
        candidate = choice.chosen.candidate
        backend = backends.get(candidate.backend)
        if places := operands_of(choice.workload, candidate, plan.device, backend):
            found[symbol] = places
    return found


def operands_of(
    workload: Workload, candidate: Candidate, device: Device, backend: Backend | None
) -> frozenset[int]:
    """The same of one candidate; none of a workload with several outputs, and of a backend that is
    not known or takes no slices."""
    if backend is None or workload.num_outputs != 1:
        return frozenset()
    names = backend.sliceable(workload, candidate, device)
    if isinstance(names, Decline):
        return frozenset()
    operands = [name for name, _, _ in workload.operand_shapes()]
    return frozenset(i for i, name in enumerate(operands) if name in names)


def by_operand(plan: Plan, strides: Mapping[str, Mapping[int, int]]) -> dict[str, dict[str, int]]:
    """Row strides by function and name of the operand, from those by place in the call. Calls of
    functions that are not the plan's, such as copies, are left out."""
    found: dict[str, dict[str, int]] = {}
    for symbol, choice in plan.functions().items():
        names = [name for name, _, _ in choice.workload.operand_shapes()]
        if places := strides.get(symbol):
            found[symbol] = {names[place]: row for place, row in places.items()}
    return found
