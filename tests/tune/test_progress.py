"""Progress of a run on a terminal and in a log file."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from tests.tune import fakes

from convoy.ir.measurement import Measurement
from convoy.tune import progress
from convoy.tune.job import Result
from convoy.tune.progress import ShowProgress


def result(i: int, **times) -> Result:
    return Result(
        fakes.workload(), fakes.candidate(i), Measurement(**times), fakes.ENVIRONMENT, 0.01
    )


def feed(show: ShowProgress) -> None:
    with show:
        show.begin(1, 3)
        show.proposed(fakes.space(fakes.workload()))
        show.reused(fakes.workload(), fakes.candidate(9))
        show.result(result(0, kernel_us=4.0), 4.0)
        show.result(result(1, failure="the process died of SIGSEGV"), 4.0)
        show.done(fakes.workload())


def test_on_a_terminal() -> None:
    stream = io.StringIO()
    feed(ShowProgress(Console(file=stream, force_terminal=True, width=160)))
    text = stream.getvalue()
    assert "3/3" in text  # of 20 candidates 3 are to be measured
    assert "best 4.00 us" in text and "/s" in text and "left" in text
    assert "eng1: the process died of SIGSEGV" in text


def test_in_a_log(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    stream = io.StringIO()
    feed(ShowProgress(Console(file=stream, force_terminal=False, width=160)))
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("3 of 3, ") and "1 failed" in lines[-1]
    assert "sum of the best 4.0 us" in lines[-1]
    assert "SIGSEGV" in stream.getvalue() and "\x1b" not in stream.getvalue()
