"""The tables of docs/benchmarks.md come from results files and nowhere else."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "readme_tables", ROOT / "scripts" / "readme_tables.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(script: ModuleType) -> None:
    assert script.main(["--check"]) == 0


@pytest.fixture
def project(tmp_path: Path, script: ModuleType) -> Path:
    (tmp_path / "benchmarks" / "results" / "h200").mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    (tmp_path / script.PAGE).write_text(f"before\n{script.BEGIN}\nold\n{script.END}\nafter\n")
    return tmp_path


def test_without_results_it_says_so(script: ModuleType, project: Path) -> None:
    assert script.main(["--check"], project) == 1
    assert script.main([], project) == 0
    assert script.main(["--check"], project) == 0
    expected = f"before\n{script.BEGIN}\nThere are no results yet.\n{script.END}\nafter\n"
    assert (project / script.PAGE).read_text() == expected


def test_a_table_from_a_file(
    script: ModuleType, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = project / "benchmarks" / "results" / "h200"
    rows = [
        {"system": "placed", "model": "net", "batch": 1, "ms": 0.12345},
        {"system": "eager", "model": "net", "batch": 1, "failed": "out of memory"},
        {"system": "placed", "model": "net", "batch": 8, "ms": 1.5},
    ]
    environment = {"gpu": "NVIDIA H200", "cudnn": "9.19.0"}
    (results / "models.json").write_text(json.dumps({"environment": environment, "rows": rows}))
    (results / "plan.json").write_text(json.dumps({"choices": []}))
    script.main([], project)
    text = (project / script.PAGE).read_text()
    assert "[models](../benchmarks/results/h200/models.json): NVIDIA H200, cuDNN 9.19.0." in text
    assert "| network | N | placed | eager |" in text
    assert "| net | 1 | 0.123 | failed |" in text
    assert "| net | 8 | 1.500 | - |" in text
    assert "plan.json" in capsys.readouterr().err


def test_markers_are_needed(script: ModuleType) -> None:
    with pytest.raises(ValueError, match="results: begin"):
        script.replace_section("no markers", "")
