"""Choosing the schedule of a module: planned, and on a machine with a GPU also tried."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import InvalidOption
from ..ir.schedule import Footprint, Op, Schedule, Trial
from . import durations
from .dependence import Dependences
from .machine import Machine
from .planner import CLOSE, multi_stream, retime, single_stream
from .planner import contenders as contenders_of
from .program import Program
from .variants import Variant, combinations, crowded

if TYPE_CHECKING:
    from .durations import Figure
    from .link import Lowered
    from .placed import PlacedKernels

AUTO = "auto"
#: A predicted gain below this is not believed without a trial.
LEAST_GAIN = 1.03
#: Schedules that are predicted to be slower than this are not tried. Below 1, because the costs of
#: crossing streams are those of large graphs; between two short kernels they are smaller.
LEAST_TRIED = 0.85
#: Without a trial kernels are exchanged for a predicted gain above this.
LEAST_EXCHANGE = 1.01
#: Exchanges of kernels that are tried.
EXCHANGES = 6
#: Schedules on several streams that are timed against one stream.
CONTENDERS = 4
#: Bytes that the arenas of a trial may take together; fewer contenders where they are large.
TRIAL_BYTES = 8e9


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


@dataclass(frozen=True)
class Decision:
    """A module's program and schedule, and kernels that were exchanged for it, by symbol."""

    program: Program
    schedule: Schedule
    exchanged: Mapping[str, Variant] = field(default_factory=dict)


def decide(
    lowered: Lowered,
    machine: Machine,
    figures: Mapping[str, Figure],
    streams: int | str = AUTO,
    *,
    on_gpu: bool = False,
    cuda_graph: bool = True,
    kernels: PlacedKernels | None = None,
    external: Callable[[Mapping[str, Variant]], Any] | None = None,
) -> Decision:
    """How a lowered module runs.

    ``streams`` 1 keeps program order on the caller's stream; a larger number is taken as given;
    "auto" takes several streams where they pay. ``on_gpu`` says that the GPU that is built for is
    in this machine: durations are then measured where the placement has none, footprints always,
    and "auto" keeps several streams only when they measured faster by more than the spread.
    Otherwise the simulator decides.

    ``kernels`` are those that may be exchanged where ops share the device, and ``external`` makes
    the module of offloaded functions with some of them; both only for "auto".

    Raises NotSchedulable for a module that must stay as it is.
    """
    machine = machine if cuda_graph else machine.without_graph()
    program = lowered.program(machine)
    cold = durations.coldness(program, machine)
    ops = durations.fill_in(program, figures, machine, cold)
    parallel = Dependences([op.depends for op in ops]).width_exceeds_one()
    if streams == 1 or not parallel:
        single = single_stream(ops, program.buffers, machine)
        why = "one stream was asked for" if streams == 1 else "no two ops are independent"
        decided_by = "requested" if streams == 1 else "simulated"
        return Decision(program, dataclasses.replace(single, decided_by=decided_by, note=why))
    if on_gpu:
        callees = _functions(lowered, [op.symbol for op in ops])
        ops = durations.measure(program, ops, machine, callees)
    if streams != AUTO:
        multi = multi_stream(ops, program.buffers, machine, int(streams))
        return Decision(program, dataclasses.replace(multi, decided_by="requested"))
    single = single_stream(ops, program.buffers, machine)
    planned = contenders_of(ops, program.buffers, machine, most=CONTENDERS if on_gpu else 2)
    multi = planned[0]
    contenders: list[Contender] = [(schedule, {}) for schedule in planned]
    if kernels is not None and external is not None:
        most = EXCHANGES if on_gpu else 1
        longest = multi.makespan_us * (CLOSE if on_gpu else 1 / LEAST_EXCHANGE)
        others = _with_other_kernels(ops, program, multi, machine, kernels, cold, most)
        contenders.extend(c for c in others if c[0].makespan_us < longest)
    least = LEAST_TRIED if on_gpu else LEAST_GAIN
    contenders = [
        c for c in contenders if c[0].streams > 1 and c[0].makespan_us * least < single.makespan_us
    ]
    if not contenders:
        note = f"several streams are predicted to be {multi.predicted_speedup:.2f} times as fast"
        return Decision(program, dataclasses.replace(single, note=note))
    if not on_gpu:
        schedule, exchanged = min(contenders, key=lambda c: c[0].makespan_us)
        note = "predicted, not measured: no such GPU in this machine"
        schedule = dataclasses.replace(schedule, note=note + _exchanges(exchanged))
        return Decision(program, schedule, exchanged)
    room = max(1, int(TRIAL_BYTES // max(1, single.memory.peak_bytes)) - 1)
    contenders = sorted(contenders, key=lambda c: c[0].makespan_us)[:room]
    return _measured(lowered, program, single, contenders, external, cuda_graph)


Contender = tuple[Schedule, Mapping[str, Variant]]


def _with_other_kernels(
    ops: Sequence[Op],
    program: Program,
    multi: Schedule,
    machine: Machine,
    kernels: PlacedKernels,
    cold: float,
    most: int,
) -> list[Contender]:
    """Up to ``most`` schedules with some kernels exchanged, shortest predicted time first.

    Where kernels are so wide that several streams do not pay, no schedule shows where they would
    with others; so what the streams would be if all kernels were narrow is a second start.
    """
    narrow = [dataclasses.replace(op, footprint=Footprint(waves=0.0)) for op in ops]
    found: dict[tuple[tuple[str, str], ...], Contender] = {}
    for start in (multi, multi_stream(narrow, program.buffers, machine)):
        start = retime(start, ops, machine)
        variants = kernels.variants(crowded(start), cold)
        for exchanged in combinations(start, variants, machine, most):
            kernel_of = tuple(sorted((symbol, v.kernel) for symbol, v in exchanged.items()))
            if kernel_of not in found:
                other = [exchanged[o.symbol].apply(o) if o.symbol in exchanged else o for o in ops]
                found[kernel_of] = multi_stream(other, program.buffers, machine), exchanged
    return sorted(found.values(), key=lambda contender: contender[0].makespan_us)[:most]


def _exchanges(exchanged: Mapping[str, Variant]) -> str:
    return f"; {len(exchanged)} kernels exchanged for others that leave room" if exchanged else ""


def _measured(
    lowered: Lowered,
    program: Program,
    single: Schedule,
    contenders: list[Contender],
    external: Callable[[Mapping[str, Variant]], Any] | None,
    cuda_graph: bool,
) -> Decision:
    """One stream against each contender, and the fastest if it wins by more than the spread."""
    modules = [None, *(external(c[1]) if c[1] and external else None for c in contenders)]
    executables = [
        lowered.link(program, schedule, [module] if module is not None else None)
        for schedule, module in zip([single, *(c[0] for c in contenders)], modules, strict=True)
    ]
    (one, one_spread), *others = try_out(program, executables, cuda_graph)
    best = min(range(len(others)), key=lambda i: others[i][0])
    (many, many_spread), (multi, exchanged) = others[best], contenders[best]
    trial = Trial(one, many, one_spread, many_spread)
    note = f"one stream {one:.1f} us, {multi.streams} streams {many:.1f} us"
    if not trial.faster:
        chosen: Contender = (single, {})
    else:
        chosen, note = (multi, exchanged), note + _exchanges(exchanged)
    schedule = dataclasses.replace(chosen[0], decided_by="measured", trial=trial, note=note)
    return Decision(program, schedule, chosen[1])


def try_out(
    program: Program, executables: Sequence[Any], cuda_graph: bool = True, device: int = 0
) -> list[tuple[float, float]]:
    """Median and spread (half the distance from the 10th to the 90th percentile) of the time of
    each executable of a program on the GPU, in microseconds, taken in turns: replays of a graph, or
    calls that are waited for where no graph will be used."""
    import tvm
    from tvm.runtime.vm import VirtualMachine

    from ..graph.expr import dtype_of, shape_of
    from ..measure import network
    from ..measure.turns import turn

    params = program.func.params
    inputs = network.random_tensors([(shape_of(p), dtype_of(p)) for p in params], device)
    sampler = network.graph_replays if cuda_graph else network.calls
    machines = [VirtualMachine(executable, tvm.cuda(device)) for executable in executables]
    samplers = [sampler(vm["main"], inputs, device) for vm in machines]
    found = network.time_networks(samplers, take_turn=functools.partial(turn, device))
    return [(round(s.median_us, 3), round(s.spread_us, 3)) for s in found]


def _functions(lowered: Lowered, symbols: list[str]) -> dict[str, Any]:
    """What can be called by the symbols of ops: kernels and functions of external modules."""
    found: dict[str, Any] = {}
    for symbol in dict.fromkeys(symbols):
        for module in (lowered.kernels, *lowered.external):
            if module is not None and module.implements_function(symbol):
                found[symbol] = module[symbol]
                break
    return found
