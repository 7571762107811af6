"""Control characters of names are shown, never sent to the terminal."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from convoy.cli.main import app, main
from convoy.cli.output import say
from convoy.ir.candidate import Candidate
from convoy.ir.measurement import Measurement
from convoy.ir.workload import Workload
from convoy.records import record_file
from convoy.records.environment import Environment
from convoy.records.record import Record
from convoy.report import tables

TITLE = "\x1b]0;owned\x07\x9b2J"  # sets a terminal's title and clears its screen
SHOWN = r"\x1b]0;owned\x07\x9b2J"


def test_printable() -> None:
    assert tables.printable(TITLE) == SHOWN
    assert tables.printable("3×3 conv_α\n", keep="\n") == "3×3 conv_α\n"
    assert tables.printable("a\u202eb") == r"a\u202eb"  # right-to-left override


@pytest.mark.parametrize("terminal", [False, True])
def test_tables(terminal: bool) -> None:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=200)
    tables.show(["kernel"], [[TITLE]], console=console)
    assert SHOWN in console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x07" not in console.file.getvalue()  # type: ignore[attr-defined]


def test_lines(capsys: pytest.CaptureFixture[str]) -> None:
    say("one\ntwo", TITLE)
    assert capsys.readouterr().out == f"one\ntwo\n{SHOWN}\n"


def test_records_of_others(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    workload, candidate = Workload("fprop", 1, 8, 8, 8, 8, 1, 1), Candidate("cudnn", f"k{TITLE}")
    environment = Environment(gpu=f"G{TITLE}")
    record = Record(workload, candidate, Measurement(kernel_us=1.0), environment)
    record_file.Appender(path).append([record])
    printed = CliRunner().invoke(app, ["records", "show", str(path)]).output
    assert f"k{SHOWN}" in printed and f"G{SHOWN}: 1" in printed and "\x1b" not in printed


def test_errors(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["convoy", "place", f"{TITLE}.relay"])
    with pytest.raises(SystemExit):
        main()
    error = capsys.readouterr().err
    assert SHOWN in error and "\x1b" not in error
