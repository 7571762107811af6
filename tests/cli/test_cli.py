"""The command ``convoy`` as a process and in it."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from convoy import __version__
from convoy.cli import main as cli
from convoy.cli.doctor import probes
from convoy.cli.doctor.check import Check
from convoy.ir.candidate import Candidate
from convoy.ir.measurement import Measurement
from convoy.ir.workload import Workload
from convoy.records import record_file
from convoy.records.environment import Environment
from convoy.records.record import Record

run = CliRunner().invoke


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("plase net.onnx", "No such command 'plase'. Did you mean 'place'? See convoy --help."),
        ("place net.onnx --batch many", "Invalid value for '--batch': "),
        ("build net.onnx", "Missing option '--output' / '-o'. See convoy build --help."),
        ("bench --bach 1", "No such option: --bach "),
        ("records", "Missing command. See convoy records --help."),
        ("records show --limit -1", "Invalid value for '--limit': "),
    ],
)
def test_mistakes_of_usage_are_one_line(
    arguments: str,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["convoy", *arguments.split()])
    with pytest.raises(SystemExit) as end:
        cli.main()
    printed = capsys.readouterr()
    assert (end.value.code, printed.out) == (2, "")
    (line,) = printed.err.splitlines()
    assert line.startswith(f"convoy: {expected}") and line.endswith(" --help.")


def test_no_command_prints_the_help() -> None:
    done = run(cli.app, [])
    assert done.exit_code == 0 and "place" in done.output


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Path]:
    environment = Environment("NVIDIA H200", 132, "580.95.05", cudnn="9.19.1", kernels="abc")
    some = [
        Record(
            Workload("fprop", n, 56, 56, 64, 64, 3, 3),
            Candidate("cudnn", f"eng{i}"),
            Measurement(kernel_us=10.0 - i) if i != 2 else Measurement(failure="no workspace"),
            environment,
            "2026-01-31T12:00:00Z",
        )
        for n in (1, 8)
        for i in range(3)
    ]
    path = tmp_path / "some.jsonl"
    record_file.Appender(path).append(some)
    yield path


def test_version_and_mistakes_as_a_process() -> None:
    command = [sys.executable, "-m", "convoy"]
    done = subprocess.run([*command, "--version"], capture_output=True, text=True)
    lines = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines()[:3])
    assert done.returncode == 0
    assert lines["convoy"] == __version__ and lines["tvm"].startswith("0.27")
    done = subprocess.run([*command, "records", "show", "none"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("convoy: InvalidOption: got record file none")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("status", "need", "arguments", "code"),
    [
        ("found", "cpu", [], 0),
        ("missing", "cpu", [], 1),
        ("missing", "gpu", [], 0),
        ("missing", "gpu", ["--gpu"], 1),
        ("missing", "advice", ["--gpu"], 0),
    ],
)
def test_doctor_exit_codes(
    monkeypatch: pytest.MonkeyPatch, status, need, arguments: list[str], code: int
) -> None:
    checks = [Check("thing", status, f"somewhere {'/in/a/folder' * 9}", "install it", need)]
    monkeypatch.setattr(probes, "examine", lambda: checks)
    result = run(cli.app, ["doctor", *arguments])
    assert result.exit_code == code
    assert "somewhere" in result.stdout and "thing: install it" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    result = run(cli.app, ["doctor", "--json", *arguments])
    assert result.exit_code == code
    data = json.loads(result.stdout)
    assert data["checks"][0]["remedy"] == "install it"
    assert data["cpu"] is (need != "cpu" or status == "found")


def test_show_puts_the_fastest_first(records: Path) -> None:
    result = run(cli.app, ["records", "show", str(records), "--contains", "n8h"])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.split()[2] for line in lines[2:5]] == ["eng1", "eng0", "eng2"]
    assert lines[5] == "3 of 3 records; 1 workloads; NVIDIA H200: 3"
    result = run(cli.app, ["records", "show", str(records), "--json", "--limit", "1"])
    (record,) = json.loads(result.stdout)
    assert record["environment"]["gpu"] == "NVIDIA H200"


def test_merge_prune_export(records: Path, tmp_path: Path) -> None:
    target = tmp_path / "all.jsonl"
    result = run(cli.app, ["records", "merge", str(target), str(records)])
    assert (
        result.stdout.strip() == f"{target}: 6 records; 0 superseded, 0 unreadable lines left out"
    )
    result = run(cli.app, ["records", "prune", str(target), "--failures"])
    assert "4 records kept, 2 removed" in result.stdout
    result = run(cli.app, ["records", "export", str(target)])
    assert len(list(csv.DictReader(io.StringIO(result.stdout)))) == 4
    out = tmp_path / "all.csv"
    result = run(cli.app, ["records", "export", str(target), "--out", str(out)])
    assert len(out.read_text().splitlines()) == 5
    result = run(cli.app, ["records", "prune", str(target), "--edited"])
    assert "0 records kept, 4 removed" in result.stdout


def test_show_without_files_reads_shipped_and_own_records() -> None:
    result = run(cli.app, ["records", "show", "--limit", "1"])
    assert result.exit_code == 0
    assert "records" in result.stdout
