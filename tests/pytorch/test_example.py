"""The example script runs, and what it prints is right."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "pytorch.py"


def test_example(tmp_path: Path) -> None:
    arguments = ["--device", "cpu", "--batch", "1", "2", "--image", "8"]
    run = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True, text=True, cwd=tmp_path, timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    errors = [float(text) for text in re.findall(r"\b\d\.\de[-+]\d+", run.stdout)]
    assert len(errors) == 4 and max(errors) < 1e-5
    assert "network.so: batch sizes [1, 2]" in run.stdout
    assert re.search(r"\(6 heavy\), compiled", run.stdout)
