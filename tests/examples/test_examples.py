"""Examples run on the CPU, and what they print is right."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
#: Those with Relay, and what they need besides.
RELAY = {
    "relay_migration.py": (),
    "relay_network.py": (),
    "relay_from_onnx.py": ("onnx",),
    "relay_from_pytorch.py": ("torch",),
}


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


def test_every_example_with_relay_is_run() -> None:
    assert {p.name for p in EXAMPLES.glob("relay_*.py")} == set(RELAY)


@pytest.mark.parametrize("name", RELAY)
def test_relay(name: str, printed: Callable[..., str]) -> None:
    for package in RELAY[name]:
        pytest.importorskip(package)
    assert printed(name).strip()


def test_the_migration_script_is_that_of_the_page() -> None:
    page = (ROOT / "docs" / "guides" / "relay.md").read_text()
    script = (EXAMPLES / "relay_migration.py").read_text()
    assert page.partition("```python after\n")[2].partition("```")[0] in script


def test_pytorch(printed: Callable[..., str]) -> None:
    pytest.importorskip("torch")
    out = printed("pytorch.py", "--device", "cpu", "--batch", "1", "2", "--image", "8")
    errors = [float(text) for text in re.findall(r"\b\d\.\de[-+]\d+", out)]
    assert len(errors) == 4 and max(errors) < 1e-5
    assert "network.so: batch sizes [1, 2]" in out
    assert re.search(r"\(6 heavy\), compiled", out)


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
