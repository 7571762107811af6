"""Child processes run no module of the working directory."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from convoy.child_process import python_code, python_module


def run(command: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}
    env.pop("PYTHONSAFEPATH", None)
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60)


@pytest.fixture
def trapped(tmp_path: Path) -> Path:
    """A working directory in which modules of Python's library are replaced."""
    folder = tmp_path / "here"
    folder.mkdir()
    for name in ("json", "runpy", "struct", "select", "platform"):
        (folder / f"{name}.py").write_text("raise SystemExit('a file of the working directory')")
    return folder


def test_code(trapped: Path) -> None:
    done = run(python_code("import json, sys; print(json.dumps(sys.argv[1:]))", "a", "b"), trapped)
    assert (done.stdout, done.stderr) == ('["a", "b"]\n', "")


def test_module(trapped: Path, tmp_path: Path) -> None:
    """PYTHONPATH counts, and the module sees the arguments and name of ``python -m``."""
    library = tmp_path / "library"
    library.mkdir()
    (library / "told.py").write_text("import json, sys; print(__name__, json.dumps(sys.argv[1:]))")
    done = run(python_module("told", "a"), trapped, PYTHONPATH=str(library))
    assert (done.stdout, done.stderr) == ('__main__ ["a"]\n', "")
    assert "No module named told" in run(python_module("told"), trapped).stderr
