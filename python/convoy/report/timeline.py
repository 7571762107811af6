"""Timelines: when each kernel of a network runs and on which stream, for trace and charts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.kernel_words import NATIVE, kernel_words, readable
from ..ir.plan import Choice, Plan
from ..ir.schedule import Schedule
from ..ir.schedule_parts import Op
from ..placement.explain import shape_text


@dataclass(frozen=True)
class Span:
    """A call on one stream; times in microseconds from the start of the run.

    ``label`` is the layer's name or another one for people, ``backend`` "tvm" for TVM's own
    kernels, ``kernel`` the kernel in words. ``details`` are pairs of a heading and a text.
    """

    name: str
    label: str
    backend: str
    stream: int
    start_us: float
    duration_us: float
    details: tuple[tuple[str, str], ...] = ()
    kernel: str = ""

    @property
    def end_us(self) -> float:
        return self.start_us + self.duration_us


@dataclass(frozen=True)
class Timeline:
    """All calls of one run of a network.

    ``title`` is short ("predicted"), ``how`` describes the origin of the times. ``waits`` are pairs
    of positions in ``spans``: the second waits for an event after the first, on another stream.
    ``makespan_us`` is the time of the run, which exceeds the last span's end if it was measured
    around the run.
    """

    title: str
    how: str
    spans: tuple[Span, ...]
    waits: tuple[tuple[int, int], ...]
    makespan_us: float

    @property
    def streams(self) -> tuple[int, ...]:
        """Streams in use, in order."""
        return tuple(sorted({span.stream for span in self.spans}))

    @property
    def busy_us(self) -> float:
        """Sum of all durations: the time on one stream without gaps."""
        return sum(span.duration_us for span in self.spans)


def predicted(schedule: Schedule, plan: Plan | None = None) -> Timeline:
    """Return the run as the schedule's simulator sees it; ``plan`` gives offloaded calls their
    names."""
    sources = dict.fromkeys(op.source for op in schedule.ops)
    how = f"simulated from kernel-only times ({', '.join(sources) or 'none'})"
    return Timeline(
        "predicted", how, _spans(schedule, plan), _waits(schedule), schedule.makespan_us
    )


def observed(
    schedule: Schedule,
    times: Sequence[tuple[float, float]],
    makespan_us: float,
    how: str,
    plan: Plan | None = None,
) -> Timeline:
    """Return a measured run: start and duration in microseconds of each op of the schedule, in
    order."""
    spans = [
        dataclasses.replace(
            span,
            start_us=start,
            duration_us=duration,
            details=(*span.details, ("predicted", f"{span.duration_us:.2f} us")),
        )
        for span, (start, duration) in zip(_spans(schedule, plan), times, strict=True)
    ]
    return Timeline("measured", how, tuple(spans), _waits(schedule), makespan_us)


def sequential(plan: Plan) -> Schedule:
    """Return a schedule for a plan without one: its subgraphs one after another on one stream, by
    their kernel-only times; TVM's own kernels are not in it. Subgraphs without a measurement take
    no time."""
    ops, at = [], 0.0
    for i, (symbol, choice) in enumerate(plan.functions().items()):
        duration = choice.chosen.measurement.kernel_us or 0.0
        ops.append(
            Op(
                name=symbol,
                symbol=symbol,
                kind="offloaded",
                duration_us=duration,
                start_us=at,
                end_us=at + duration,
                source=plan.source if choice.chosen.measurement.ok else "unknown",
                kernel=choice.chosen.candidate.key,
                depends=(i - 1,) if i else (),
            )
        )
        at += duration
    return Schedule(
        tuple(ops), makespan_us=at, single_us=at, note="offloaded operations only, one stream"
    )


def _spans(schedule: Schedule, plan: Plan | None) -> tuple[Span, ...]:
    choices = plan.functions() if plan is not None else {}
    return tuple(_span(op, choices.get(op.symbol)) for op in schedule.ops)


def _span(op: Op, choice: Choice | None) -> Span:
    backend, _, kernel = op.kernel.partition(":")
    details = [("time", f"{op.duration_us:.2f} us, {op.source}")]
    if choice is not None:
        workload = choice.workload
        details.insert(0, ("problem", f"{workload.op} {shape_text(workload)}"))
        if workload.epilogue.name:
            details.insert(1, ("epilogue", workload.epilogue.name))
    if kernel:
        details.append(("kernel", kernel))
    occupied = op.occupancy
    if op.kind != "native" or occupied.blocks > 1:
        details.append(("occupancy", f"{occupied.blocks} CTAs, {occupied.waves:.2f} waves"))
    label = choice.label if choice is not None else readable(op.symbol)
    return Span(
        op.name,
        label,
        backend or NATIVE,
        op.stream,
        op.start_us,
        op.end_us - op.start_us,
        tuple(details),
        kernel_words(backend, kernel) if kernel else "",
    )


def _waits(schedule: Schedule) -> tuple[tuple[int, int], ...]:
    return tuple((event.record, event.wait) for event in schedule.events if event.is_inner)
