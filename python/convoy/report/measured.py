"""A run of a compiled network on the GPU as a timeline: measured starts and ends of every call.

The function is captured as one CUDA graph with an event in front of and behind every call, on the
call's own stream, and replayed: so streams overlap as they do in use, and no host time is in the
figures. The events themselves take time; the whole is therefore timed without them as well.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import InvalidOption
from ..schedule.plan import Schedule
from . import timeline
from .timeline import Timeline

if TYPE_CHECKING:
    from ..compiled import CompiledModule

_WARM_UP, _REPLAYS = 5, 30
_SAMPLES, _BUDGET_US = 50, 1e6


def measure(compiled: CompiledModule, device: int = 0) -> Timeline:
    """Replay a compiled network on random inputs and return its measured timeline.

    Raises NoGpu and WrongDevice, InvalidOption for a module without a schedule.
    """
    import tvm
    import tvm_ffi
    from tvm.runtime.vm import VirtualMachine

    from .. import models
    from ..runtime import check_device
    from ..runtime.library import function

    schedule = compiled.schedule
    if schedule is None:
        raise InvalidOption("a measured timeline of a module without a schedule", "one for cuda")
    check_device(compiled.meta.plan.get("device", {}).get("arch"), device)
    vm = VirtualMachine(compiled.module, tvm.cuda(device))
    main = vm["main"]
    known = {t.name: (t.shape, t.dtype) for t in compiled.meta.inputs}
    inputs = [tvm.runtime.tensor(v, tvm.cuda(device)) for v in models.random_inputs(known).values()]
    alone = list(function("measure.kernel_us")(main, inputs, device, 1, _SAMPLES, _BUDGET_US))

    mark, times = function("marks.create")(2 * len(schedule.ops) + 2, device)
    last = 2 * len(schedule.ops) + 1
    vm.set_instrument(tvm_ffi.convert(marker(schedule, mark)))

    def marked(*arguments: Any) -> Any:
        mark(0)
        result = main(*arguments)
        mark(last)
        return result

    launch, _ = function("graph.capture")(tvm_ffi.convert(marked), inputs, device)
    rows = []
    for replay in range(_WARM_UP + _REPLAYS):
        launch()
        row = list(times())
        if replay >= _WARM_UP:
            rows.append(row)
    return from_marks(schedule, rows, statistics.median(alone), compiled)


def marker(schedule: Schedule, mark: Callable[[int], object]) -> Callable[..., None]:
    """An observer for the virtual machine: ``mark(2 i + 1)`` in front of op i of the schedule,
    ``mark(2 i + 2)`` behind it. Other calls of the machine are its own and not marked."""
    symbols = [op.symbol for op in schedule.ops]
    at = 0

    def watch(_function: Any, name: str, before: bool, _result: Any, *_arguments: Any) -> None:
        nonlocal at
        if at == len(symbols) or name != symbols[at]:
            return
        mark(2 * at + 1 if before else 2 * at + 2)
        at += not before

    return watch


def from_marks(
    schedule: Schedule, rows: list[list[float]], alone_us: float, compiled: CompiledModule
) -> Timeline:
    """The timeline of the median of several replays; each row holds the marks' times in
    microseconds, ``alone_us`` is the time of a replay without marks."""
    middle = [statistics.median(column) for column in zip(*rows, strict=True)]
    times = [
        (middle[2 * i + 1], max(0.0, middle[2 * i + 2] - middle[2 * i + 1]))
        for i in range(len(schedule.ops))
    ]
    how = (
        f"events around every kernel in a replayed CUDA graph, median of {len(rows)};"
        f" {middle[-1]:.1f} us with the events, {alone_us:.1f} us without"
    )
    return timeline.observed(schedule, times, alone_us, how, compiled.plan)
