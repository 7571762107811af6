"""The example of ONNX runs."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnx")

EXAMPLE = Path(__file__).parents[3] / "examples" / "onnx_text_recognition.py"


def test_the_example_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--width", "6"])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out
    assert "--shape image=1,1,16,224" in printed and "error" in printed
