"""The example scripts with Relay run to their end."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDS = {
    "relay_migration.py": (),
    "relay_network.py": (),
    "relay_from_onnx.py": ("onnx",),
    "relay_from_pytorch.py": ("torch",),
}


def test_every_example_is_run() -> None:
    assert {p.name for p in (ROOT / "examples").glob("relay_*.py")} == set(NEEDS)


@pytest.mark.parametrize("name", NEEDS)
def test_example(name: str, tmp_path: Path) -> None:
    for package in NEEDS[name]:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"no package {package}")
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name)],
        capture_output=True, text=True, timeout=600, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_migration_script_is_that_of_the_page() -> None:
    page = (ROOT / "docs" / "guides" / "relay.md").read_text()
    script = (ROOT / "examples" / "relay_migration.py").read_text()
    assert page.partition("```python after\n")[2].partition("```")[0] in script
