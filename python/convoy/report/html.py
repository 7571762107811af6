"""One self-contained HTML page about a network: its plan, timelines, graph and memory.

Everything is in the file (style, script and drawings), nothing is fetched, and without a script the
page is whole but for zooming and the notes at the pointer.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InvalidOption
from ..ir.plan import Plan
from ..ir.schedule import Schedule
from ..placement.explain import predicted_us
from ..placement.explanation import Explanation
from . import charts, layers, trace
from .operations import operations, plan_explanation
from .timeline import Timeline, predicted, sequential
from .units import duration, size

if TYPE_CHECKING:
    import jinja2

    from ..placement.placement import Placement
    from ..runtime.compiled import CompiledModule

# Distinct for colour-blind readers (after Tol), dark enough for white letters; streams and backends
# share no colour.
STREAM_COLOURS = (
    "#3f6fa8", "#d2601a", "#228833", "#aa3377", "#8a7400", "#1f8fa3", "#8c3b4a", "#5f6b2d",
)  # fmt: skip
_BACKEND_COLOURS = {
    "cudnn": "#0f7b6c",
    "cutlass": "#b5541c",
    "hopper": "#7b4fb5",
    "depthwise": "#2b7bb9",
    "attention": "#b5834f",
    "cublaslt": "#3d8b37",
    "tvm": "#7a8699",
}
_OTHER_COLOURS = ("#b04a78", "#5b7d1e", "#8c6d31", "#4a6fa5")
MODES = {
    "graph": "graph: replayed as a CUDA graph",
    "stream": "stream: launched asynchronously",
    "sync": "sync: waited for after each call",
}
#: Layers that a page draws, the heaviest.
MOST_LAYERS = 30


@dataclass(frozen=True)
class Report:
    """The content of a page.

    ``measured`` is a run on a GPU; ``native`` the operations on TVM's own kernels, with reasons;
    ``facts`` are headings and texts about the compilation. Without a ``schedule`` the offloaded
    operations are drawn one after another; without an ``explanation`` one is derived from the plan.
    """

    name: str
    plan: Plan
    schedule: Schedule | None = None
    measured: Timeline | None = None
    native: Sequence[str] = ()
    facts: dict[str, str] = field(default_factory=dict)
    explanation: Explanation | None = None

    @property
    def drawn(self) -> Schedule:
        """The schedule, or a substitute for it."""
        return self.schedule or sequential(self.plan)

    @property
    def timelines(self) -> list[Timeline]:
        """The predicted run and, if there is one, the measured one."""
        line = predicted(self.drawn, self.plan)
        return [line, self.measured] if self.measured else [line]


def of_placement(name: str, placement: Placement, schedule: Schedule | None = None) -> Report:
    """Return the report of a network that is placed and not compiled; ``schedule`` is a predicted
    one. Without it the network runs on one stream."""
    native = tuple(dict.fromkeys(map(str, placement.native)))
    why = placement.explanation
    return Report(name, placement.plan, schedule, native=native, explanation=why)


def of_compiled(name: str, compiled: CompiledModule, measured: Timeline | None = None) -> Report:
    """Return the report of a compiled network. Raises InvalidOption for one that was not placed."""
    plan = compiled.plan
    if plan is None:
        raise InvalidOption(f"a report on a module for {compiled.meta.target}", "one for cuda")
    versions = {k: v for k, v in compiled.meta.versions.items() if v[:1].isdigit()}
    facts = {"precision": compiled.meta.precision, **versions}
    return Report(name, plan, compiled.schedule, measured, facts=facts)


def environment() -> jinja2.Environment:
    """Return the templates of pages; names of others are escaped."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("convoy.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )


def render(report: Report) -> str:
    """Return the page as text."""
    return environment().get_template("report.html.j2").render(_context(report))


def write(path: Path, report: Report) -> None:
    """Write the page to a file."""
    path.write_text(render(report), encoding="utf-8")


def _context(report: Report) -> dict[str, object]:
    from .. import __version__

    plan = report.plan
    schedule, lines = report.drawn, report.timelines
    explanation = report.explanation or plan_explanation(plan)
    line = lines[0]
    ends = [span.end_us for item in lines for span in item.spans]
    scale = max([item.makespan_us for item in lines] + ends)
    return {
        "version": __version__,
        "name": report.name,
        "plan": plan,
        "schedule": schedule,
        "tiles": _tiles(report, schedule, line),
        "layers": found[:MOST_LAYERS] if (found := layers.of_timelines(lines)) and scale else [],
        "more_layers": found[MOST_LAYERS:],
        "longest": max([max(x.us, x.predicted_us or 0.0) for x in found], default=1.0),
        "facts": {**_facts(plan, schedule), **report.facts},
        "timelines": [charts.timeline_chart(item, scale) for item in lines] if scale else [],
        "measured": report.measured is not None,
        "graph": charts.graph_chart(schedule, line),
        "memory": charts.memory_chart(schedule.memory, line, scale)
        if schedule.memory.buffers
        else None,
        "explanation": explanation,
        "operations": operations(explanation),
        "known": sum(op.winner.kernel_us is not None for op in explanation.ops),
        "modes": MODES,
        "native": report.native,
        "trace": json.dumps(trace.trace(lines, report.name)),
        "stream_colours": STREAM_COLOURS,
        "backend_colours": backend_colours(_backends(lines, explanation)),
        "size": size,
        "duration": duration,
    }


def _tiles(report: Report, schedule: Schedule, line: Timeline) -> list[tuple[str, str, str]]:
    """Return the values at the head of the page: (heading, value, remark)."""
    plan, memory = report.plan, schedule.memory
    tiles = []
    if schedule.makespan_us:
        remark = f"one stream {duration(schedule.single_us)}"
        if schedule.streams > 1:
            remark += f", {schedule.predicted_speedup:.2f}x"
        for name, word in (("stream", "asynchronous"), ("sync", "synchronized")):
            remark += f", {word} {duration(predicted_us(plan, schedule, name))}"
        tiles.append(("predicted", duration(schedule.makespan_us), remark))
    if report.measured:
        took = report.measured.makespan_us
        remark = f"{schedule.makespan_us / took:.2f} of it predicted" if took else ""
        tiles.append(("measured", duration(took), remark))
    if schedule.trial:
        trial = schedule.trial
        remark = f"measured; one stream {duration(trial.single_us)}"
        tiles.append(("several streams", duration(trial.multi_us), remark))
    tiles.append(("streams", str(schedule.streams), f"{len(schedule.events)} events"))
    counts = Counter(span.backend for span in line.spans).most_common()
    remark = ", ".join(f"{backend} {count}" for backend, count in counts)
    tiles.append(("kernels", str(len(schedule.ops)), remark))
    if memory.peak_bytes:
        remark = f"one stream {size(memory.single_stream_bytes)}"
        tiles.append(("peak memory", size(memory.peak_bytes), remark))
    return tiles


def _facts(plan: Plan, schedule: Schedule) -> dict[str, str]:
    sources = Counter(op.source for op in schedule.ops)
    times = ", ".join(f"{count} {name}" for name, count in sources.items())
    return {
        "objective": plan.objective,
        "times of kernels": times or "none",
        "device": plan.device.name,
    }


def _backends(lines: Sequence[Timeline], explanation: Explanation) -> Iterator[str]:
    """Yield the backends that a page names, some of them repeatedly."""
    for line in lines:
        yield from (span.backend for span in line.spans)
    for op in explanation.ops:
        yield from (offer.backend for offer in (op.winner, *op.losers))


def backend_colours(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each backend, those of other packages included."""
    found = dict(_BACKEND_COLOURS)
    for name in names:
        if name not in found:
            found[name] = _OTHER_COLOURS[len(found) % len(_OTHER_COLOURS)]
    return found
