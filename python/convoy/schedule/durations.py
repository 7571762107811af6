"""Durations and footprints of ops: from the placement, measured on the GPU, or estimated."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .machine import Machine
from .plan import Footprint, Op
from .program import Program

if TYPE_CHECKING:
    from ..placement.plan import Choice
    from ..workload import Workload

#: Output tile and threads of a typical matrix kernel, where nothing better is known.
_TILE_M, _TILE_N, _THREADS, _SHARED = 128, 128, 256, 98304


@dataclass(frozen=True)
class Figure:
    """What is known of an offloaded function: the kernel that runs it, its time and workload."""

    kernel: str
    workload: Workload
    duration_us: float | None = None
    source: str = "recorded"


def figures_of(
    choices: Sequence[Choice], symbols: Mapping[str, str], source: str
) -> dict[str, Figure]:
    """Figures by symbol from the choices of a placement; ``symbols`` maps regions to symbols and
    ``source`` is the plan's."""
    return {
        symbols[choice.region]: Figure(
            choice.chosen.candidate.key,
            choice.workload,
            choice.chosen.measurement.kernel_us,
            source,
        )
        for choice in choices
    }


def fill_in(program: Program, figures: Mapping[str, Figure], machine: Machine) -> list[Op]:
    """Ops with what the placement knows; what it does not know stays estimated."""
    ops = []
    for op in program.ops:
        figure = figures.get(op.symbol)
        if figure is not None:
            changes: dict[str, Any] = {
                "kernel": figure.kernel,
                "footprint": estimated_footprint(figure.workload, machine),
            }
            if figure.duration_us is not None:
                changes |= {"duration_us": figure.duration_us, "source": figure.source}
            op = dataclasses.replace(op, **changes)
        ops.append(op)
    return ops


def estimated_footprint(workload: Workload, machine: Machine) -> Footprint:
    """Blocks of a kernel with tiles of 128 x 128 for a workload's matrix product."""
    name = workload.op
    pixels = workload.n * (workload.h * workload.w if name == "dgrad" else workload.p * workload.q)
    channels = workload.c if name == "dgrad" else workload.k
    if name == "wgrad":
        pixels, channels = workload.r * workload.s * workload.c, workload.k
    blocks = math.ceil(pixels / _TILE_M) * math.ceil(channels / _TILE_N)
    return machine.footprint(blocks, _THREADS, _SHARED)


def measure(
    program: Program,
    ops: Sequence[Op],
    machine: Machine,
    functions: Mapping[str, Any],
    device: int = 0,
    budget_us: float = 20e3,
) -> list[Op]:
    """Ops with durations (of those that are only estimated) and footprints (of all) as the GPU
    shows them, each distinct function once. ``functions`` maps symbols to what can be called.

    A function that cannot be called on its own keeps its estimate.
    """
    from ..runtime.library import function

    known: dict[tuple[str, tuple[Any, ...]], dict[str, Any]] = {}
    measured = []
    for op, call in zip(ops, program.calls, strict=True):
        key = (op.symbol, tuple(_signature(arg) for arg in call.args))
        if key not in known:
            known[key] = {}
            callee = functions.get(op.symbol)
            tensors = _tensors(call.args, device)
            if callee is not None and tensors is not None:
                known[key] = _measure_one(function, callee, tensors, op, machine, device, budget_us)
        measured.append(dataclasses.replace(op, **known[key]))
    return measured


def _measure_one(
    function: Any,
    callee: Any,
    tensors: list[Any],
    op: Op,
    machine: Machine,
    device: int,
    budget_us: float,
) -> dict[str, Any]:
    import numpy as np

    found: dict[str, Any] = {}
    function("measure.call")(callee, tensors, device)
    kernels = json.loads(function("graph.kernels")(callee, tensors, device))
    if kernels:
        footprints = [
            Footprint(
                k["blocks"],
                k["threads"],
                k["shared_bytes"],
                round(k["blocks"] / (max(1, k["resident"]) * machine.sm_count), 4),
            )
            for k in kernels
        ]
        found["footprint"] = max(footprints, key=lambda f: f.waves)
    if op.source == "estimated":
        samples = list(function("measure.kernel_us")(callee, tensors, device, 20, 20, budget_us))
        found |= {"duration_us": float(np.median(samples)), "source": "measured"}
    return found


def _signature(arg: Any) -> Any:
    ty = getattr(arg, "ty", None)
    shape = getattr(ty, "shape", None)
    return (str(shape), str(getattr(ty, "dtype", ""))) if shape is not None else str(arg)


def _tensors(args: Sequence[Any], device: int) -> list[Any] | None:
    """Device tensors of zeros for a call's arguments; None where one is no tensor."""
    import tvm

    from ..graph.expr import dtype_of, is_tensor, shape_of
    from ..runtime.library import function

    tensors = []
    for arg in args:
        if not is_tensor(arg):
            return None
        tensor = tvm.runtime.empty(shape_of(arg), dtype_of(arg), tvm.cuda(device))
        function("cuda.fill")(tensor, 0)
        tensors.append(tensor)
    return tensors
