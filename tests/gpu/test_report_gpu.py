"""Measured timelines on the GPU: ends in order, waits kept, and a run that adds up."""

from __future__ import annotations

from pathlib import Path

import pytest

import convoy
from convoy.relay.convert import to_relax
from convoy.relay.testing import squeezenet
from convoy.report import html, measured

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("streams", [1, 4])
def test_measured_timeline_of_a_network(streams: int, tmp_path: Path) -> None:
    module, params = squeezenet.get_workload(batch_size=1, version="1.1")
    options = {"backends": ("cudnn", "tvm"), "measure": False}
    built = convoy.build(to_relax(module, params), "cuda", streams=streams, **options)
    schedule = built.schedule
    assert schedule is not None and (schedule.streams > 1) == (streams > 1)
    line = measured.measure(built)
    assert len(line.spans) == len(schedule.ops)
    last = max(span.end_us for span in line.spans)
    # Marks 0 and 1 are a few microseconds of the disturbed run.
    assert 0.8 * line.makespan_us - 5 < last < 1.2 * line.makespan_us + 10
    for stream in line.streams:
        ends = [span.end_us for span in line.spans if span.stream == stream]
        assert ends == sorted(ends) and ends[0] > 0
    assert bool(line.waits) == (streams > 1)
    for record, wait in line.waits:
        assert line.spans[wait].end_us >= line.spans[record].end_us
    page = html.render(html.of_compiled("squeezenet", built, line))
    assert 'data-timeline="measured"' in page
