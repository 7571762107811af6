"""Choosing the schedule of a module: planned, and on a machine with a GPU also tried."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InvalidOption
from . import durations
from .dependence import Dependences
from .machine import Machine
from .plan import Schedule, Trial
from .planner import multi_stream, single_stream
from .program import Program

if TYPE_CHECKING:
    from .durations import Figure
    from .link import Lowered

AUTO = "auto"
#: A predicted gain below this is not worth a trial, nor to be believed without one.
LEAST_GAIN = 1.03
_ROUNDS, _SAMPLES = 7, 20


def check_streams(streams: int | str) -> int | str:
    """``streams`` as an option of convoy.build; raises InvalidOption for anything but "auto" and
    numbers from 1 to 32."""
    if streams == AUTO:
        return streams
    try:
        number = int(streams)
    except (TypeError, ValueError):
        number = 0
    if not 1 <= number <= 32:
        raise InvalidOption(f"streams={streams!r}", '"auto" or a number from 1 to 32')
    return number


def decide(
    lowered: Lowered,
    machine: Machine,
    figures: Mapping[str, Figure],
    streams: int | str = AUTO,
    *,
    on_gpu: bool = False,
    cuda_graph: bool = True,
) -> tuple[Program, Schedule]:
    """Program and schedule of a lowered module.

    ``streams`` 1 keeps program order on the caller's stream; a larger number is taken as given;
    "auto" takes several streams where they pay. ``on_gpu`` says that the GPU that is built for is
    in this machine: durations are then measured where the placement has none, footprints always,
    and "auto" keeps several streams only when they measured faster by more than the spread.
    Otherwise the simulator decides.

    Raises NotSchedulable for a module that must stay as it is.
    """
    machine = machine if cuda_graph else machine.without_graph()
    program = lowered.program(machine)
    ops = durations.fill_in(program, figures, machine)
    parallel = Dependences([op.depends for op in ops]).width_exceeds_one()
    if streams == 1 or not parallel:
        single = single_stream(ops, program.buffers, machine)
        why = "one stream was asked for" if streams == 1 else "no two ops are independent"
        decided_by = "requested" if streams == 1 else "simulated"
        return program, dataclasses.replace(single, decided_by=decided_by, note=why)
    if on_gpu:
        callees = _functions(lowered, [op.symbol for op in ops])
        ops = durations.measure(program, ops, machine, callees)
    single = single_stream(ops, program.buffers, machine)
    if streams != AUTO:
        multi = multi_stream(ops, program.buffers, machine, int(streams))
        return program, dataclasses.replace(multi, decided_by="requested")
    multi = multi_stream(ops, program.buffers, machine)
    if multi.streams == 1 or multi.predicted_speedup < LEAST_GAIN:
        note = f"several streams are predicted to be {multi.predicted_speedup:.2f} times as fast"
        return program, dataclasses.replace(single, note=note)
    if not on_gpu:
        note = "predicted, not measured: no such GPU in this machine"
        return program, dataclasses.replace(multi, note=note)
    trial = try_out(lowered, program, single, multi, cuda_graph)
    chosen = multi if trial.faster else single
    note = f"one stream {trial.single_us:.1f} us, {multi.streams} streams {trial.multi_us:.1f} us"
    return program, dataclasses.replace(chosen, decided_by="measured", trial=trial, note=note)


def try_out(
    lowered: Lowered,
    program: Program,
    single: Schedule,
    multi: Schedule,
    cuda_graph: bool = True,
    device: int = 0,
) -> Trial:
    """Times of two schedules on the GPU, in turns: replays of a graph, or calls that are waited
    for where no graph will be used."""
    import tvm
    from tvm.runtime.vm import VirtualMachine

    from ..graph.expr import dtype_of, shape_of
    from ..runtime.library import function

    tensors = []
    for param in program.func.params:
        tensor = tvm.runtime.empty(shape_of(param), dtype_of(param), tvm.cuda(device))
        function("cuda.fill")(tensor, 0)
        tensors.append(tensor)
    machines = [
        VirtualMachine(lowered.link(program, schedule), tvm.cuda(device))
        for schedule in (single, multi)
    ]
    samples: list[list[float]] = [[], []]
    for _ in range(_ROUNDS):
        for vm, found in zip(machines, samples, strict=True):
            if cuda_graph:
                call = (vm["main"], tensors, device, 1, _SAMPLES, 20e3)
                found.extend(function("measure.kernel_us")(*call))
            else:
                found.extend(
                    function("measure.e2e_us")(vm["main"], tensors, device, _SAMPLES, 20e3)
                )
    (one, one_spread), (many, many_spread) = map(_summary, samples)
    return Trial(one, many, one_spread, many_spread)


def _summary(samples: list[float]) -> tuple[float, float]:
    low, middle, high = np.percentile(samples, [10, 50, 90])
    return round(float(middle), 3), round(float(high - low) / 2, 3)


def _functions(lowered: Lowered, symbols: list[str]) -> dict[str, Any]:
    """What can be called by the symbols of ops: kernels and functions of external modules."""
    found: dict[str, Any] = {}
    for symbol in dict.fromkeys(symbols):
        for module in (lowered.kernels, *lowered.external):
            if module is not None and module.implements_function(symbol):
                found[symbol] = module[symbol]
                break
    return found
