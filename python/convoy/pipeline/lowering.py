"""Lower a placement: calls of the functions of its plan, which are built into a runtime module."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence

import tvm

from ..backends import registry
from ..backends.base import Backend
from ..backends.entries import build_entries
from ..backends.sliceable import by_operand, sliceable_operands, wanted
from ..cost.native import moving_us
from ..graph.function import main_function
from ..graph.slices import NotSliceable, row_strides
from ..ir.artifact import Meta
from ..ir.device import Device
from ..lower.in_place import write_in_place
from ..lower.lowered import Lowered
from ..partition.rewrite import with_constant_weights
from ..placement.placement import Placement
from ..runtime import create_module

_log = logging.getLogger("convoy")


def lower_to_calls(
    placement: Placement,
    target: str | tvm.target.Target,
    backends: Mapping[str, Backend] | None = None,
    in_place: bool = True,
) -> tuple[tvm.IRModule, Lowered]:
    """Lower to calls of kernels and of external functions, which nothing provides yet.

    Args:
        backends: Those of the plan's candidates by name (default: the registered ones).
        in_place: Write concatenations in place where their kernels can.

    Returns:
        The module whose concatenations are written in place, and what it is lowered to.
    """
    plan, mod = placement.plan, placement.rewritten()
    target = tvm.target.Target(target) if isinstance(target, str) else target
    if in_place and wanted():
        if backends is None:
            known = plan.backends().keys() & set(registry.names())
            backends = {name: registry.get(name) for name in known}
        kernel_us = functools.partial(moving_us, device=plan.device)
        laid_out = write_in_place(mod, target, sliceable_operands(plan, backends), kernel_us)
        try:
            return laid_out, Lowered.of(laid_out, target, suffix=plan.suffix)
        except NotSliceable as err:
            _log.info("concatenations are kernels of their own: %s", err)
    return mod, Lowered.of(mod, target, suffix=plan.suffix)


def lower(
    placement: Placement,
    target: str | tvm.target.Target,
    backends: Sequence[Backend],
    in_place: bool = True,
) -> Lowered:
    """Lower to calls of kernels and of external functions, which are built here, once."""
    plan, named = placement.plan, {backend.name: backend for backend in backends}
    mod, lowered = lower_to_calls(placement, target, named, in_place)
    strides = by_operand(plan, row_strides(main_function(mod)[1]))
    workloads = {symbol: choice.workload for symbol, choice in plan.functions().items()}
    constant_weights = with_constant_weights(mod, workloads)
    built = build_entries(plan, named, constant_weights, strides)
    lowered.external = [create_module(built.entries, built.blobs, arch=plan.device.arch)]
    return lowered


def description(meta: Meta, device: Device) -> tvm.runtime.Module:
    """A module without functions that carries the description into the exported file."""
    return create_module([], {}, meta.dumps(), arch=device.arch)
