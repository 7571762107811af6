"""Examples run on the CPU, and what they print is right."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """A function that runs an example in an empty folder and returns what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(name: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_onnx_session(printed: Callable[..., str], tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    out = printed("onnx_session.py", "--target", "llvm", "--seconds", "0.05")
    assert float(re.findall(r"classes: error (\S+)", out)[0]) < 1e-5
    table = out[out.index("operation") : out.index("objective")]
    assert max(map(len, table.splitlines())) <= 80
    assert re.search(r"predicted \d+ us for \d+ kernels", out)
    shares = [int(found) for found in re.findall(r"batch \d: p50 .* (\d+)% of the time", out)]
    assert len(shares) == 2 and all(0 < share <= 100 for share in shares)
    assert "classifier" in (tmp_path / "report.html").read_text()


def test_pytorch_training(printed: Callable[..., str]) -> None:
    pytest.importorskip("torch")
    out = printed("pytorch_training.py", "--device", "cpu", "--steps", "4")
    losses = [tuple(map(float, pair)) for pair in re.findall(r"loss (\S+), PyTorch (\S+)", out)]
    assert len(losses) == 4 and losses[-1][0] < losses[0][0]
    assert all(ours == pytest.approx(theirs, rel=1e-4) for ours, theirs in losses)
    assert float(re.findall(r"differ by (\S+)", out)[0]) < 1e-5


def test_errors_say_what_to_do(printed: Callable[..., str]) -> None:
    pytest.importorskip("onnx")
    out = printed("errors.py")
    found = re.findall(r"^  (\w+): ", out, re.MULTILINE)
    assert found == [
        "InvalidOption", "CorruptArtefact", "DynamicShape", "UnsupportedOp", "InvalidOption",
        "InvalidOption", "RelaySyntaxError",
    ]  # fmt: skip
    assert "--shape x=1,3,224,8" in out and "outputs=[...]" in out and "Cast it" in out
