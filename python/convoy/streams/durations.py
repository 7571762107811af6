"""Durations and footprints of ops: from the placement, measured on the GPU, or estimated."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..graph.expr import dtype_of, is_const, shape_of
from ..ir.schedule import Footprint, Op
from ..tir.loads import itemsize
from .machine import Machine
from .program import Program

if TYPE_CHECKING:
    from ..backends.base import Binary
    from ..ir.candidate import Candidate
    from ..ir.device import Device
    from ..ir.measurement import Measurement
    from ..ir.plan import Plan
    from ..ir.workload import Workload

#: Output tile and threads of a typical matrix kernel, where nothing better is known.
_TILE_M, _TILE_N, _THREADS, _SHARED = 128, 128, 256, 98304


#: The largest share of a kernel's reads that miss the L2 cache for being one of many in a network.
#: Whole networks on an H200 came to 0.4 to 0.8 where a run touches more than the cache holds.
_MOST_COLD = 0.6


@dataclass(frozen=True)
class Figure:
    """What is known of an offloaded function: its times, its workload and what runs it where."""

    candidate: Candidate
    workload: Workload
    device: Device
    measurement: Measurement
    source: str = "recorded"


def figures_of(plan: Plan, symbols: Mapping[str, str]) -> dict[str, Figure]:
    """Figures by symbol from a placement; ``symbols`` maps its regions to symbols."""
    return {
        symbols[choice.subgraph]: Figure(
            choice.chosen.candidate,
            choice.workload,
            plan.device,
            choice.chosen.measurement,
            plan.source,
        )
        for choice in plan.choices
    }


def coldness(program: Program, machine: Machine) -> float:
    """How much of what kernels read has left the L2 cache since it was used last, from 0 to 1.

    Kernels are measured alone, again and again, with all that they read in the cache, and once more
    with the cache emptied. A network whose weights and intermediate tensors fit into the cache is
    near the first, a large one between the two.
    """
    from . import memory

    constants = {
        arg.value.data_ptr(): math.prod(shape_of(arg)) * itemsize(dtype_of(arg))
        for call in program.calls
        for arg in call.args
        if is_const(arg)
    }
    alone = [(1 << i) - 1 for i in range(len(program.ops))]
    inside = memory.plan(program.buffers, alone, alone).peak_bytes
    return min(_MOST_COLD, (sum(constants.values()) + inside) / machine.l2_bytes)


def blended_us(measurement: Measurement, cold: float) -> float | None:
    """Duration of a kernel that finds the share ``cold`` of what it reads not in the cache."""
    warm = measurement.kernel_us
    if warm is None or measurement.cold_us is None:
        return warm
    return round(warm + cold * max(0.0, measurement.cold_us - warm), 4)


def fill_in(
    program: Program, figures: Mapping[str, Figure], machine: Machine, cold: float = 0.0
) -> list[Op]:
    """Ops with what the placement knows; what it does not know stays estimated. ``cold`` is the
    program's :func:`coldness`."""
    ops = []
    for op in program.ops:
        figure = figures.get(op.symbol)
        if figure is not None:
            changes: dict[str, Any] = {
                "kernel": figure.candidate.key,
                "footprint": estimated_footprint(
                    figure.workload, machine, figure.candidate, figure.device
                ),
            }
            if (duration := blended_us(figure.measurement, cold)) is not None:
                changes |= {"duration_us": duration, "source": figure.source}
            op = dataclasses.replace(op, **changes)
        ops.append(op)
    return ops


def estimated_footprint(
    workload: Workload,
    machine: Machine,
    candidate: Candidate | None = None,
    device: Device | None = None,
) -> Footprint:
    """Footprint by the tiles of a candidate, where they are known; otherwise as with tiles of
    128 x 128 for the workload's matrix product."""
    if candidate is not None and device is not None:
        from ..cost.features import candidate_features

        waves = candidate_features(workload, candidate, device).get("waves")
        if waves is not None:
            return Footprint(max(1, round(waves * device.sm_count)), waves=round(waves, 4))
    name = workload.op
    pixels = workload.n * (workload.h * workload.w if name == "dgrad" else workload.p * workload.q)
    channels = workload.c if name == "dgrad" else workload.k
    if name == "wgrad":
        pixels, channels = workload.r * workload.s * workload.c, workload.k
    blocks = math.ceil(pixels / _TILE_M) * math.ceil(channels / _TILE_N)
    return machine.footprint(blocks, _THREADS, _SHARED)


def measured_footprint(
    workload: Workload, binary: Binary, machine: Machine, device: int = 0
) -> Footprint | None:
    """Footprint of a built candidate as the GPU sees it; None where it launches no kernel."""
    import tvm

    from ..runtime.library import function
    from ..runtime.module import create_module

    callee = create_module([{**binary.entry, "symbol": "variant"}], binary.blobs)["variant"]
    tensors = []
    for _, shape, dtype in workload.operand_shapes():
        tensors.append(tvm.runtime.empty(shape, dtype, tvm.cuda(device)))
        function("cuda.fill")(tensors[-1], 0)
    function("measure.call")(callee, tensors, device)
    return _widest(json.loads(function("graph.kernels")(callee, tensors, device)), machine)


def _widest(kernels: Sequence[Mapping[str, int]], machine: Machine) -> Footprint | None:
    """Of the kernels of one call the footprint of the one that fills the device most."""
    footprints = [
        Footprint(
            k["blocks"],
            k["threads"],
            k["shared_bytes"],
            round(k["blocks"] / (max(1, k["resident"]) * machine.sm_count), 4),
        )
        for k in kernels
    ]
    return max(footprints, key=lambda f: f.waves, default=None)


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

    from ..measure.turns import turn

    found: dict[str, Any] = {}
    function("measure.call")(callee, tensors, device)
    kernels = json.loads(function("graph.kernels")(callee, tensors, device))
    if (footprint := _widest(kernels, machine)) is not None:
        found["footprint"] = footprint
    if op.source == "estimated":
        with turn(device):
            samples = list(
                function("measure.kernel_us")(callee, tensors, device, 20, 20, budget_us)
            )
        found |= {"duration_us": float(np.median(samples)), "source": "measured"}
    return found


def _signature(arg: Any) -> Any:
    ty = getattr(arg, "ty", None)
    shape = getattr(ty, "shape", None)
    return (str(shape), str(getattr(ty, "dtype", ""))) if shape is not None else str(arg)


def _tensors(args: Sequence[Any], device: int) -> list[Any] | None:
    """Device tensors of zeros for a call's arguments; None where one is no tensor."""
    import tvm

    from ..graph.expr import is_tensor
    from ..runtime.library import function

    tensors = []
    for arg in args:
        if not is_tensor(arg):
            return None
        tensor = tvm.runtime.empty(shape_of(arg), dtype_of(arg), tvm.cuda(device))
        function("cuda.fill")(tensor, 0)
        tensors.append(tensor)
    return tensors
