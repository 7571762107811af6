"""Write timelines as a Chrome trace for ui.perfetto.dev and chrome://tracing.

One process for each timeline, one row for each stream, an arrow for each event that one stream
waits for. Format: "Trace Event Format" of the Chromium project; times are microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from .timeline import Span, Timeline

Event = dict[str, object]


def trace(timelines: Sequence[Timeline], name: str = "") -> dict[str, object]:
    """Return the trace as data for JSON; ``name`` is that of the network."""
    events = [event for pid, line in enumerate(timelines, 1) for event in _process(line, pid)]
    about = {line.title: f"{line.makespan_us:.1f} us; {line.how}" for line in timelines}
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {"network": name, **about},
    }


def write(path: Path, timelines: Sequence[Timeline], name: str = "") -> None:
    """Write the trace to a file."""
    path.write_text(json.dumps(trace(timelines, name)), encoding="utf-8")


def _process(line: Timeline, pid: int) -> Iterator[Event]:
    yield _about("process_name", pid, name=f"{line.title} ({line.makespan_us:.1f} us)")
    yield _about("process_labels", pid, labels=line.how)
    yield _about("process_sort_index", pid, sort_index=pid)
    for stream in line.streams:
        # A row's number is unique in the trace, or viewers take two rows for one thread.
        yield _about("thread_name", pid, _row(pid, stream), name=f"stream {stream}")
        yield _about("thread_sort_index", pid, _row(pid, stream), sort_index=stream)
    for span in line.spans:
        yield {
            "ph": "X",
            "name": span.label,
            "cat": span.backend,
            "pid": pid,
            "tid": _row(pid, span.stream),
            "ts": span.start_us,
            "dur": span.duration_us,
            "args": {"call": span.name, "backend": span.backend, **dict(span.details)},
        }
    for number, (record, wait) in enumerate(line.waits):
        first, second = line.spans[record], line.spans[wait]
        common = {"cat": "event", "name": "event", "pid": pid, "id": f"{pid}.{number}"}
        # An arrow's end belongs to the slice that encloses its time.
        yield {"ph": "s", "tid": _row(pid, first.stream), "ts": _inside(first, 1.0), **common}
        at = _inside(second, 0.0)
        yield {"ph": "f", "bp": "e", "tid": _row(pid, second.stream), "ts": at, **common}


def _inside(span: Span, share: float) -> float:
    """Return a time within a span, a thousandth off its ends."""
    return span.start_us + span.duration_us * min(max(share, 0.001), 0.999)


def _row(pid: int, stream: int) -> int:
    return 1000 * pid + stream


def _about(event: str, pid: int, tid: int = 0, **args: object) -> Event:
    return {"ph": "M", "name": event, "pid": pid, "tid": tid, "args": args}
