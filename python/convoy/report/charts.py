"""Timelines, graph and memory plan as shapes for the page's SVG. Lengths along time are shares of
the width in percent, so that a chart can be stretched; all other lengths are pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.schedule import Schedule
from ..ir.schedule_parts import MemoryPlan
from . import graph_view
from .timeline import Timeline
from .units import byte_steps, duration, size, steps

ROW, GAP, AXIS = 30, 6, 22  # height of a stream's row, between rows, of the time axis
NODE_WIDTH, NODE_HEIGHT, LAYER = 128, 30, 54  # of the graph
MEMORY_HEIGHT = 260
_LONGEST = 17  # letters in a node


@dataclass(frozen=True)
class Box:
    """A rectangle with a text, and a longer text that is shown when the pointer is on it."""

    x: float
    y: float
    width: float
    height: float
    label: str
    tip: str
    colour: str


@dataclass(frozen=True)
class Tick:
    """A mark on an axis: its place and its text."""

    at: float
    label: str


@dataclass(frozen=True)
class TimelineChart:
    title: str
    how: str
    total: str
    height: int
    boxes: tuple[Box, ...]
    rows: tuple[tuple[int, float], ...]
    ticks: tuple[Tick, ...]
    backends: tuple[str, ...]


@dataclass(frozen=True)
class Line:
    """An edge of the graph as an SVG path. ``across``: it goes from one stream to another.
    ``behind``: it is drawn straight behind nodes, because there are too many to route around."""

    path: str
    across: bool
    behind: bool


@dataclass(frozen=True)
class GraphChart:
    width: float
    height: float
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    streams: tuple[int, ...]


@dataclass(frozen=True)
class MemoryChart:
    height: int
    boxes: tuple[Box, ...]
    ticks: tuple[Tick, ...]
    addresses: tuple[Tick, ...]
    single_at: float | None


def timeline_chart(line: Timeline, scale_us: float) -> TimelineChart:
    """Return a timeline chart with a width of ``scale_us``, so that several charts have one
    scale."""
    rows = {stream: i * (ROW + GAP) for i, stream in enumerate(line.streams)}
    boxes = tuple(
        Box(
            x=_share(span.start_us, scale_us),
            y=rows[span.stream],
            width=_share(span.duration_us, scale_us),
            height=ROW,
            label=span.label,
            tip=_tip(
                f"{span.label}  [{span.backend}]",
                [
                    ("from", f"{span.start_us:.2f} to {span.end_us:.2f} us, stream {span.stream}"),
                    *span.details,
                ],
            ),
            colour=span.backend,
        )
        for span in line.spans
    )
    return TimelineChart(
        title=line.title,
        how=line.how,
        total=duration(line.makespan_us),
        height=len(rows) * (ROW + GAP) + AXIS,
        boxes=boxes,
        rows=tuple(rows.items()),
        ticks=time_ticks(scale_us),
        backends=tuple(dict.fromkeys(span.backend for span in line.spans)),
    )


def graph_chart(schedule: Schedule, line: Timeline) -> GraphChart:
    """Return the graph of a schedule: who reads whose result. A box's colour is its stream's
    number."""
    placed = graph_view.place(_reads(schedule))
    step = NODE_WIDTH + 14
    boxes = tuple(
        Box(
            x=round(placed.x[i] * step, 1),
            y=placed.y[i] * LAYER,
            width=NODE_WIDTH,
            height=NODE_HEIGHT,
            label=_shortened(span.label),
            tip=_tip(f"{span.label}  [{span.backend}]  stream {span.stream}", span.details),
            colour=str(span.stream),
        )
        for i, span in enumerate(line.spans)
    )
    lines = tuple(
        Line(
            _curve([(x * step + NODE_WIDTH / 2, y * LAYER) for x, y in points]),
            line.spans[j].stream != line.spans[i].stream,
            len(points) == 2 and placed.y[i] - placed.y[j] > 2,
        )
        for j, i, points in placed.edges
    )
    return GraphChart(
        placed.width * step, placed.height * LAYER - LAYER + NODE_HEIGHT, boxes, lines, line.streams
    )


def _reads(schedule: Schedule) -> list[set[int]]:
    """Return the ops whose results each op reads. Dependences, which also include shared storage,
    are used if no buffers are known."""
    if not schedule.memory.buffers:
        return [set(op.depends) for op in schedule.ops]
    reads: list[set[int]] = [set() for _ in schedule.ops]
    for buffer in schedule.memory.buffers:
        for reader in buffer.readers:
            reads[reader].update(writer for writer in buffer.writers if writer < reader)
    return reads


def memory_chart(memory: MemoryPlan, line: Timeline, scale_us: float) -> MemoryChart:
    """Buffers as boxes of the time from their first writer's start to their last reader's end, and
    of their addresses; ``scale_us`` fill the width, as in the timelines above. A buffer's colour is
    the stream that writes it first."""
    most = max(memory.peak_bytes, memory.single_stream_bytes, 1)
    scale = max(scale_us, 1e-9)
    boxes = []
    for buffer in memory.buffers:
        users = [*buffer.writers, *buffer.readers]
        writers = buffer.writers or buffer.readers
        start = min((line.spans[i].start_us for i in writers), default=0.0)
        end = max((line.spans[i].end_us for i in users), default=scale)
        first = min(writers, key=lambda i: line.spans[i].start_us, default=None)
        height = MEMORY_HEIGHT * buffer.size / most
        made = line.spans[first].label if first is not None else buffer.name
        where = f"{buffer.offset:,} to {buffer.offset + buffer.size:,}"
        boxes.append(
            Box(
                x=_share(start, scale),
                y=round(MEMORY_HEIGHT * (1 - (buffer.offset + buffer.size) / most), 2),
                width=_share(end - start, scale),
                height=round(height, 2),
                label=made if height >= 14 else "",
                tip=_tip(
                    f"{made}  {size(buffer.size)}",
                    [
                        ("address", where),
                        ("lives", f"{start:.2f} to {end:.2f} us"),
                        ("written by", _names(line, buffer.writers)),
                        ("read by", _names(line, buffer.readers)),
                    ],
                ),
                colour=str(line.spans[first].stream) if first is not None else "0",
            )
        )
    single = memory.single_stream_bytes
    return MemoryChart(
        height=MEMORY_HEIGHT + AXIS,
        boxes=tuple(boxes),
        ticks=time_ticks(scale),
        addresses=tuple(
            Tick(MEMORY_HEIGHT * (1 - at / most), size(int(at))) for at in byte_steps(most)
        ),
        single_at=MEMORY_HEIGHT * (1 - single / most) if single else None,
    )


def time_ticks(scale_us: float) -> tuple[Tick, ...]:
    """About eight round times from 0 to ``scale_us``, placed in percent."""
    unit, name = (1000.0, "ms") if scale_us >= 10000 else (1.0, "us")
    return tuple(Tick(_share(at, scale_us), f"{at / unit:g} {name}") for at in steps(scale_us, 8))


def _shortened(label: str) -> str:
    return label if len(label) <= _LONGEST else label[: _LONGEST - 1] + "…"


def _share(value: float, whole: float) -> float:
    return round(100 * value / whole, 4) if whole else 0.0


def _curve(points: Sequence[tuple[float, float]]) -> str:
    """Return a smooth line from the lower side of the first node to the upper side of the last
    one."""
    (x, y), rest = points[0], points[1:]
    y += NODE_HEIGHT
    text = f"M{x:.1f} {y:.1f}"
    for i, (to_x, to_y) in enumerate(rest):
        end_y = to_y if i == len(rest) - 1 else to_y + NODE_HEIGHT / 2
        bend = (end_y - y) / 2
        text += f"C{x:.1f} {y + bend:.1f} {to_x:.1f} {end_y - bend:.1f} {to_x:.1f} {end_y:.1f}"
        x, y = to_x, end_y
    return text


def _tip(head: str, details: Sequence[tuple[str, str]]) -> str:
    return "\n".join([head, *(f"{name}: {value}" for name, value in details)])


def _names(line: Timeline, ops: Sequence[int]) -> str:
    shown = ", ".join(line.spans[i].label for i in ops[:4])
    return (shown + (f" and {len(ops) - 4} more" if len(ops) > 4 else "")) or "nobody"
