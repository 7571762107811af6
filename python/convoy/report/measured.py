"""Measure the timeline of a compiled network on the GPU: when every call ended.

The function is captured as a CUDA graph and replayed, so streams overlap as they do in use and no
host time is measured. An event between two kernels delays what follows by more than a short
kernel takes. Therefore the graph is captured once for each call, with a single event behind that
call, and all times come from graphs that are disturbed in one place only, behind what is measured.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..errors import InvalidOption
from ..ir.schedule import Schedule
from ..measure.gpu_lock import gpu_lock
from ..measure.network import graph_replays, random_tensors, time_networks
from ..progress import Progress
from ..runtime import check_device
from ..runtime.library import function
from . import timeline
from .timeline import Timeline

if TYPE_CHECKING:
    import tvm
    import tvm_ffi
    from tvm import relax

    from ..runtime.compiled import CompiledModule

_WARM_UP, _REPLAYS = 3, 15
_SAMPLES, _BUDGET_US = 50, 0.5e6


def measure(
    compiled: CompiledModule, device: int = 0, progress: Progress | None = None
) -> Timeline:
    """Replay a compiled network on random inputs and return its measured timeline. Takes some ten
    milliseconds for each call of the network.

    Raises NoGpu and WrongDevice, InvalidOption for a module without a schedule.
    """
    import tvm
    from tvm.runtime.vm import VirtualMachine

    schedule = compiled.schedule
    if schedule is None:
        raise InvalidOption("a measured timeline of a module without a schedule", "one for cuda")
    check_device(compiled.meta.arch, device)
    vm = VirtualMachine(compiled.module, tvm.cuda(device))
    inputs = random_tensors([(t.shape, t.dtype) for t in compiled.meta.inputs], device)
    replays = graph_replays(vm["main"], inputs, device, budget_us=_BUDGET_US)
    (whole,) = time_networks([replays], 1, _SAMPLES, lock=functools.partial(gpu_lock, device))
    ends = _ends(vm, schedule, inputs, device, progress)
    how = (
        "replayed as a CUDA graph, with one event at a time behind one kernel at a time;"
        f" undisturbed the run takes {whole.median_us:.1f} us"
    )
    times = in_order(schedule, ends)
    return timeline.observed(schedule, times, whole.median_us, how, compiled.plan)


def _ends(
    vm: relax.VirtualMachine,
    schedule: Schedule,
    inputs: list[tvm.runtime.Tensor],
    device: int,
    progress: Progress | None,
) -> list[float]:
    """Return when each op ends, in microseconds from the start of a replay."""
    import tvm_ffi

    mark, times = function("marks.create")(2, device)
    main, wanted = vm["main"], -1
    calls = Calls(schedule, lambda op: mark(1) if op == wanted else None)
    vm.set_instrument(tvm_ffi.convert(calls.watch))

    def marked(*arguments: tvm.runtime.Tensor) -> tvm_ffi.Object:
        calls.start()
        mark(0)
        return main(*arguments)

    ends = []
    for wanted, op in enumerate(schedule.ops):
        if progress is not None:
            progress(op.name, wanted + 1, len(schedule.ops))
        launch, *_ = function("graph.capture")(tvm_ffi.convert(marked), inputs, device)
        samples = []
        for _ in range(_WARM_UP + _REPLAYS):
            launch()
            samples.append(list(times())[1])
        ends.append(statistics.median(samples[_WARM_UP:]))
    return ends


class Calls:
    """An observer for the virtual machine that knows the ops of a schedule among its calls, and
    tells ``behind(i)`` when op i has been enqueued."""

    def __init__(self, schedule: Schedule, behind: Callable[[int], object]) -> None:
        self._symbols = [op.symbol for op in schedule.ops]
        self._behind = behind
        self._next = 0

    def start(self) -> None:
        """A run begins."""
        self._next = 0

    def watch(
        self, _function: object, name: str, before: bool, _result: object, *_args: object
    ) -> None:
        """See :meth:`convoy.runtime.session.Session.observe`."""
        if before or self._next == len(self._symbols) or name != self._symbols[self._next]:
            return
        self._behind(self._next)
        self._next += 1


def in_order(schedule: Schedule, ends: Sequence[float]) -> list[tuple[float, float]]:
    """Return start and duration of ops that ended at ``ends`` (microseconds, in the schedule's
    order). An op starts when it could: the op before it on its stream and all that it waits for
    have ended. Ends come from different graphs, each with its own noise, so that an op may seem to
    end before one that it follows: it then takes no time."""
    waits: dict[int, list[int]] = {}
    for event in schedule.events:
        if event.is_inner:
            waits.setdefault(event.wait, []).append(event.record)
    times: list[tuple[float, float]] = []
    last: dict[int, int] = {}
    for i, (op, end) in enumerate(zip(schedule.ops, ends, strict=True)):
        before = [*waits.get(i, []), *([last[op.stream]] if op.stream in last else [])]
        start = max((sum(times[j]) for j in before), default=0.0)
        times.append((start, max(0.0, end - start)))
        last[op.stream] = i
    return times
