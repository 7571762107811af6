"""Stages: what callbacks and logs get, whatever happens inside."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from convoy.progress import Stages, running, stages, step


def test_a_callback_gets_stages_and_steps():
    seen = []
    report = Stages(lambda *call: seen.append(call))
    with report.stage("normalize"):
        pass
    with report.stage("measure kernels"):
        report("one", 1, 2)
        report("two", 2, 2)
    assert seen == [("normalize", 0, 0), ("measure kernels", 0, 0), ("one", 1, 2), ("two", 2, 2)]


def test_logs_get_a_line_when_a_stage_begins_and_when_it_ends_or_fails(caplog):
    caplog.set_level(logging.INFO, "convoy")
    with pytest.raises(ValueError), Stages().stage("lower"):
        assert caplog.messages == ["lower ..."]
        raise ValueError
    assert [message.split(":")[0] for message in caplog.messages] == ["lower ...", "lower"]


def test_stages_within_stages_share_one_bar(monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    report = stages(None)
    with report.stage("select"):
        outer = report._bar
        with stages(report).stage("compile kernels"):
            report("a kernel", 1, 3)
            assert report._bar is outer
        assert report._bar is outer
    assert report._bar is None


def test_names_are_no_markup(monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    report = Stages()
    with report.stage("measure kernels"):
        report("[/dim] [link=x]kernel", 1, 2)
        report._bar.refresh()
        (line,) = report._bar.get_renderables()
        assert "[/dim]" in "".join(str(cell) for cell in line.columns[-1].cells)


def test_steps_from_anywhere_belong_to_the_innermost_stages():
    seen = []
    step("outside", 1, 1)
    with Stages(lambda *call: seen.append(call)).stage("build"):
        step("first", 0, 2)
        with running().stage("compile kernels"):
            step("NVRTC", 1, 3)
        step("second", 1, 2)
    step("behind", 1, 1)
    stages_and_steps = [("build", 0, 0), ("first", 0, 2), ("compile kernels", 0, 0)]
    assert seen == [*stages_and_steps, ("NVRTC", 1, 3), ("second", 1, 2)]


_LONG = """
import sys, time
from convoy import progress
progress._LONG_S, progress._LINE_EVERY_S = 0.0, 0.0
exec(sys.argv[1])
with progress.Stages().stage("build"):
    with progress.running().stage("compile kernels"):
        progress.step("NVRTC", 1, 3)
"""


@pytest.mark.parametrize(
    ("before", "lines"),
    [
        ("", ["build ...", "compile kernels ...", "compile kernels: 1 of 3 (NVRTC)"]),
        ("progress._LONG_S = 60.0", []),
        ("import logging; logging.basicConfig(level='WARNING')", []),
        ("sys.stderr = None", []),
        ("sys.stderr.close()", []),
    ],
    ids=["long", "short", "logs are read", "no stream", "closed stream"],
)
def test_a_pipe_gets_lines_of_long_work(before: str, lines: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LONG, before], capture_output=True, text=True, check=True
    )
    seen = done.stderr.splitlines()
    assert "\r" not in done.stderr and seen[: len(lines)] == [f"convoy: {line}" for line in lines]
    ends = [line.split(":")[1].strip() for line in seen[len(lines) :]]
    assert ends == (["compile kernels", "build"] if lines else [])


def test_reading_a_model_file_is_a_stage(tmp_path, caplog):
    from convoy.cli.options import read_model

    path = tmp_path / "net.relay"
    path.write_text('#[version = "0.0.5"]\ndef @main(%x: Tensor[(2), float32]) { nn.relu(%x) }\n')
    caplog.set_level(logging.INFO, "convoy")
    read_model(path, None, None)
    assert [message.split(":")[0] for message in caplog.messages] == ["import ...", "import"]
