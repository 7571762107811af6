"""Build the functions of a placement into a runtime module with its description."""

from __future__ import annotations

import dataclasses
import warnings
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
from ..runtime.compiled import CompiledModule
from ..tir import Rescheduled


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


def with_rescheduled(meta: Meta, kernels: Sequence[Rescheduled]) -> Meta:
    """``meta``, with a warning for each kernel that is not scheduled as it should be."""
    for kernel in kernels:
        warnings.warn(f"compiled with a simpler schedule: {kernel}", stacklevel=4)
    return dataclasses.replace(meta, rescheduled=tuple(map(str, kernels)))


def repeat_warnings(module: CompiledModule) -> CompiledModule:
    """The module of an earlier build, with the warnings of that build."""
    for kernel in dict.fromkeys(
        k for m in (module.meta, *module.meta.others) for k in m.rescheduled
    ):
        warnings.warn(f"compiled with a simpler schedule: {kernel}", stacklevel=5)
    return module
