"""Find the durations and occupancies of ops: in the plan, by measuring, or by estimating."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from ..graph.expr import dtype_of, is_tensor, shape_of
from ..ir.device import Device
from ..ir.objective import device_us
from ..ir.plan import Choice, Plan
from ..ir.schedule_parts import Op
from ..measure.gpu_lock import gpu_lock
from ..progress import step
from ..runtime.library import function
from ..tir.loads import itemsize
from . import occupancy

if TYPE_CHECKING:
    from .program import Program

#: Which GPU of the process.
_GPU = 0
#: Launches in one captured graph, samples, and microseconds for those of one function.
_LAUNCHES, _SAMPLES, _BUDGET_US = 20, 20, 20e3


def from_plan(ops: Sequence[Op], plan: Plan) -> list[Op]:
    """Ops with durations from the plan for the offloaded ones; the others keep their estimates."""
    choices = plan.functions()
    return [_from_choice(op, choices.get(op.symbol), plan) for op in ops]


def _from_choice(op: Op, choice: Choice | None, plan: Plan) -> Op:
    if choice is None:
        return op
    chosen = choice.chosen
    fastest = sorted(choice.best_by_backend, key=lambda offer: device_us(offer.measurement))
    others = [offer.candidate for offer in fastest]
    measurement = chosen.measurement
    occupied = occupancy.of_workload(choice.workload, plan.device, chosen.candidate, others)
    op = dataclasses.replace(op, kernel=chosen.candidate.key, occupancy=occupied)
    if measurement.kernel_us is None:
        return op
    source = "estimated" if measurement.estimated else plan.source
    return dataclasses.replace(op, source=source).timed(measurement)


def measure(
    program: Program,
    ops: Sequence[Op],
    device: Device,
    functions: Mapping[str, Callable[..., object]],
) -> list[Op]:
    """Measure durations (of ops that are only estimated) and occupancies (of all) on the GPU.

    Each distinct function is measured once; one that cannot be called on its own keeps its
    estimate.

    Args:
        functions: What can be called, by symbol.
    """
    known: dict[tuple[str, tuple[object, ...]], dict[str, Any]] = {}
    measured = []
    for number, (op, call) in enumerate(zip(ops, program.calls, strict=True)):
        step(op.symbol, number, len(ops))
        key = (op.symbol, tuple(_signature(arg) for arg in call.args))
        if key not in known:
            known[key] = {}
            callee = functions.get(op.symbol)
            tensors = _tensors(program, call.args)
            if callee is not None and tensors is not None:
                known[key] = _measure_one(callee, tensors, op, device)
        measured.append(dataclasses.replace(op, **known[key]))
    return measured


def _measure_one(
    callee: Callable[..., object],
    tensors: list[tvm.runtime.Tensor],
    op: Op,
    device: Device,
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    function("measure.call")(callee, tensors, _GPU)
    kernels = json.loads(function("graph.kernels")(callee, tensors, _GPU))
    if (occupied := occupancy.of_kernels(kernels, device)) is not None:
        found["occupancy"] = occupied
    if op.source == "estimated":
        timer = function("measure.kernel_us")
        with gpu_lock(_GPU):
            samples = list(timer(callee, tensors, _GPU, _LAUNCHES, _SAMPLES, _BUDGET_US))
        us = float(np.median(samples))
        found |= {"duration_us": us, "source": "measured"}
        if op.chained_us is not None:
            alone_us = us + op.duration_us - op.chained_us
            found |= {"duration_us": alone_us, "chained_us": us}
    return found


def _signature(arg: relax.Expr) -> object:
    ty = getattr(arg, "ty", None)
    shape = getattr(ty, "shape", None)
    return (str(shape), str(getattr(ty, "dtype", ""))) if shape is not None else str(arg)


def _tensors(program: Program, args: Sequence[relax.Expr]) -> list[tvm.runtime.Tensor] | None:
    """Device tensors of zeros for a call's arguments, slices of tensors of their own; None if one
    is no tensor."""
    tensors = []
    for arg in args:
        if not is_tensor(arg):
            return None
        shape, dtype = shape_of(arg), dtype_of(arg)
        own = program.slices.get(arg) if isinstance(arg, relax.Var) else None
        whole = shape if own is None else (*shape[:-1], own.row_stride)
        tensor = tvm.runtime.empty(whole, dtype, tvm.cuda(_GPU))
        function("cuda.fill")(tensor, 0)
        if own is not None:
            offset = own.begin * itemsize(dtype)
            tensor = function("streams.slice")(
                tensor, offset, tvm_ffi.Shape(shape), tvm.DataType(dtype), own.row_stride
            )
        tensors.append(tensor)
    return tensors
