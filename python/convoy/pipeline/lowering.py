"""Lower a placement: calls of the functions of its plan, which are built into a runtime module."""

from __future__ import annotations

from collections.abc import Sequence

import tvm

from ..backends.base import Backend
from ..backends.entries import build_entries
from ..ir.artifact import Meta
from ..ir.device import Device
from ..lower.lowered import Lowered
from ..partition.rewrite import rewrite, with_constant_weights
from ..placement.placement import Placement
from ..runtime import create_module


def rewritten(placement: Placement) -> tvm.IRModule:
    """The module with calls of external functions in place of the plan's subgraphs."""
    chosen = {c.subgraph: symbol for symbol, c in placement.plan.functions().items()}
    return rewrite(placement.module, chosen, subgraphs=placement.subgraphs)


def lower(
    placement: Placement,
    target: str | tvm.target.Target,
    backends: Sequence[Backend],
) -> Lowered:
    """Lower to calls of kernels and of external functions, which are built here, once."""
    plan, mod = placement.plan, rewritten(placement)
    constant = with_constant_weights(mod)
    built = build_entries(plan, {backend.name: backend for backend in backends}, constant)
    functions = create_module(built.entries, built.blobs, arch=plan.device.arch)
    return Lowered.of(mod, target, [functions], plan.suffix)


def description(meta: Meta, device: Device) -> tvm.runtime.Module:
    """A module without functions that carries the description into the exported file."""
    return create_module([], {}, meta.dumps(), arch=device.arch)
