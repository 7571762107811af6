"""Rows of a benchmark and their file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.rows import Bench, dumps


def test_benchmark_goes_on_after_a_case_that_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Bench("trial", tmp_path / "rows.json")

    def broken() -> dict[str, Any]:
        raise ValueError("no such device")

    bench.run([({"form": "a"}, broken), ({"form": "b"}, lambda: {"us": 2.5})])
    assert bench.rows[1]["us"] == 2.5
    assert bench.failures() == 1
    assert "a: ValueError: no such device" in capsys.readouterr().out
    data = json.loads((tmp_path / "rows.json").read_text())
    assert data["benchmark"] == "trial" and data["rows"] == bench.rows and data["environment"]


def test_a_row_takes_a_line() -> None:
    data = {"environment": {"gpu": "G", "cuda": "13"}, "rows": [{"a": 1}, {"a": [2, 3]}], "x": []}
    text = dumps(data)
    assert json.loads(text) == data
    assert len(text.splitlines()) == 8
    assert '  {"a": [2, 3]}' in text.splitlines()
