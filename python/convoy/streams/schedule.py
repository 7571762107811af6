"""Schedule a lowered network; compare with one stream if the GPU is present."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.runtime.vm import VirtualMachine

from ..errors import InvalidOption
from ..graph.expr import dtype_of, shape_of
from ..ir.objective import device_us, own_cost
from ..ir.plan import Plan
from ..ir.schedule import Schedule, Trial
from ..ir.schedule_parts import Op
from ..lower.lowered import Lowered
from ..measure import network
from ..measure.gpu_lock import gpu_lock
from ..tir.builder import TIMED_BY_VALUES
from . import durations
from .costs import EAGER, REPLAY, LaunchCosts
from .dependence import Dependences
from .link import Part, link
from .planner import LEAST_GAIN, close_schedules, multi_stream, single_stream
from .program import Program, read

AUTO = "auto"
#: Schedules with a predicted speedup below this are not tried: predictions are 5% off on average.
LEAST_TRIED = 0.9
#: Schedules on several streams that are timed against one stream, and ops that they may have in
#: all, with at least two schedules: to build one for a trial takes 1.5 ms an op.
CONTENDERS, CONTENDER_OPS = 4, 1_000
#: Bytes that the arenas of a trial may take together; fewer schedules where they are large.
TRIAL_BYTES = 8e9


def check_streams(streams: int | str) -> int | str:
    """``streams`` as an option of convoy.build; raises InvalidOption for anything but "auto" and
    numbers from 1 to 32."""
    if streams == AUTO:
        return streams
    try:
        number = int(streams) if isinstance(streams, (int, str)) else 0
    except ValueError:
        number = 0
    if not 1 <= number <= 32:
        raise InvalidOption(f"streams={streams!r}", '"auto" or a number from 1 to 32')
    return number


@dataclass(frozen=True)
class Timing:
    """The result of scheduling a program.

    ``wants_one_stream`` is a hint that other kernels should be selected: these were selected for
    several streams, and one stream is faster. The scheduler itself changes no kernel.
    """

    program: Program
    schedule: Schedule
    wants_one_stream: bool = False


def schedule(
    lowered: Lowered,
    plan: Plan,
    streams: int | str = AUTO,
    *,
    compiled: bool = True,
    on_gpu: bool = False,
    cuda_graph: bool = True,
) -> Timing:
    """Choose streams, launch order, events and storage of a lowered network.

    Args:
        streams: 1 keeps program order on the caller's stream; a larger number is taken as it is;
            "auto" takes several streams where they pay.
        compiled: Compile the kernels first, so that the schedule is of those that compile;
            without it nothing is compiled, and the schedule is a prediction.
        on_gpu: The GPU of the plan is in this machine: durations are measured where the plan has
            none or an estimate, TVM's kernels' among them, and occupancies always; "auto" keeps
            several streams only where they measured faster by more than the spread. Otherwise the
            simulator decides.
        cuda_graph: The function will be replayed as one CUDA graph.

    Raises:
        NotSchedulable: The network must stay as it is.
    """
    program = read(lowered.calls, plan.device)  # raises NotSchedulable before anything is compiled
    tried = lowered.rescheduled
    if compiled and lowered.kernels is not None and lowered.rescheduled != tried:
        program = read(lowered.calls, plan.device)  # kernels that do not compile were replaced
    costs = REPLAY if cuda_graph else EAGER
    ops = durations.from_plan(program.ops, plan)
    if on_gpu:
        functions = lowered.functions([op.symbol for op in ops if not _varies(lowered, op.symbol)])
        ops = durations.measure(program, ops, plan.device, functions)
    parallel = Dependences([op.depends for op in ops]).width_exceeds_one()
    if streams == 1 or not parallel:
        single = single_stream(ops, program.buffers, costs)
        note = "one stream was asked for" if streams == 1 else "no two ops are independent"
        decided_by = "requested" if streams == 1 else "simulated"
        return Timing(program, dataclasses.replace(single, decided_by=decided_by, note=note))
    if streams != AUTO:
        multi = multi_stream(ops, program.buffers, int(streams), costs)
        return Timing(program, dataclasses.replace(multi, decided_by="requested"))
    if on_gpu:
        return _measured(lowered, program, ops, plan, cuda_graph)
    return Timing(program, _predicted(ops, program, costs))


def _varies(lowered: Lowered, symbol: str) -> bool:
    """Return whether the time of a function depends on the values of its inputs, so that zeros do
    not measure it."""
    attrs = lowered.calls[symbol].attrs if symbol in lowered.calls else None
    return attrs is not None and TIMED_BY_VALUES in attrs


def _predicted(ops: Sequence[Op], program: Program, costs: LaunchCosts) -> Schedule:
    """Several streams where the simulator sees a gain that can be believed."""
    single = single_stream(ops, program.buffers, costs)
    multi = close_schedules(ops, program.buffers, most=2, costs=costs)[0]
    if multi.streams > 1 and multi.makespan_us * LEAST_GAIN < single.makespan_us:
        note = "predicted, not measured: no such GPU in this machine"
        return dataclasses.replace(multi, note=note)
    note = f"predicted speedup of several streams {multi.predicted_speedup:.2f}"
    return dataclasses.replace(single, note=note)


def _measured(
    lowered: Lowered, program: Program, ops: Sequence[Op], plan: Plan, cuda_graph: bool
) -> Timing:
    """Compare one stream with schedules on several; select the fastest if it is faster by more than
    the spread."""
    costs = REPLAY if cuda_graph else EAGER
    single = single_stream(ops, program.buffers, costs)
    most = max(2, min(CONTENDERS, CONTENDER_OPS // len(ops)))
    planned = close_schedules(ops, program.buffers, most=most, costs=costs)
    room = max(1, int(TRIAL_BYTES // max(1, single.memory.peak_bytes)) - 1)
    tried = [
        s for s in planned if s.streams > 1 and s.makespan_us * LEAST_TRIED < single.makespan_us
    ][:room]
    if not tried:
        note = f"predicted speedup of several streams {planned[0].predicted_speedup:.2f}"
        return Timing(program, dataclasses.replace(single, note=note), plan.streams > 1)
    (one, one_spread), *others = _times(lowered, program, [single, *tried], cuda_graph)
    best = min(range(len(others)), key=lambda i: others[i][0])
    (many, many_spread), multi = others[best], tried[best]
    trial = Trial(one, many, one_spread, many_spread)
    note = f"one stream {one:.1f} us, {multi.streams} streams {many:.1f} us"
    alone = dataclasses.replace(trial, single_us=one - _overhead_us(plan))
    chosen = multi if alone.faster else single
    kept = dataclasses.replace(chosen, decided_by="measured", trial=trial, note=note)
    return Timing(program, kept, plan.streams > 1 and chosen is single)


def _overhead_us(plan: Plan) -> float:
    """Additional time of kernels that were selected for several streams when they run on one."""
    if plan.streams == 1:
        return 0.0
    overhead = 0.0
    for choice in plan.choices:
        known = [device_us(o.measurement) for o in choice.best_by_backend if o.measurement.ok]
        own, _ = own_cost(choice.chosen.measurement, "graph", choice.linked)
        overhead += max(0.0, own - min(known, default=math.inf))
    return overhead


def _times(
    lowered: Lowered, program: Program, schedules: Sequence[Schedule], cuda_graph: bool
) -> list[tuple[float, float]]:
    """Time schedules of a program on the GPU: functions of one executable, which holds the weights
    once."""
    names = ["main", *(f"schedule_{i}" for i in range(1, len(schedules)))]
    parts = [Part(lowered, program, s, n) for s, n in zip(schedules, names, strict=True)]
    return time_functions(program, link(parts), names, cuda_graph)


def time_functions(
    program: Program,
    executable: relax.VMExecutable,
    names: Sequence[str],
    cuda_graph: bool,
) -> list[tuple[float, float]]:
    """Time functions of an executable alternately on the GPU: replays of a CUDA graph, or
    synchronized calls where no graph will be used. Returns (median, spread) of each in
    microseconds."""
    device, params = 0, program.func.params
    inputs = network.random_tensors([(shape_of(p), dtype_of(p)) for p in params], device)
    sampler = network.graph_replays if cuda_graph else network.calls
    vm = VirtualMachine(executable, tvm.cuda(device))
    samplers = [sampler(vm[name], inputs, device) for name in names]
    found = network.time_networks(samplers, lock=functools.partial(gpu_lock, device))
    return [(round(s.median_us, 3), round(s.spread_us, 3)) for s in found]
