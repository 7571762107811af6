"""The migration page: its script differs from TVM's in import lines only, and runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "relay.md"


def block(which: str) -> str:
    found = re.search(rf"```python {which}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    return found.group(1)


def test_only_imports_differ() -> None:
    before, after = block("before").splitlines(), block("after").splitlines()
    changed = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    assert changed
    for old, new in changed:
        assert old.startswith(("import tvm", "from tvm"))
        assert new.startswith("from convoy")


def test_the_script_runs(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(block("after"))
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    index, seconds = done.stdout.split()
    assert 0 <= int(index) < 10
    assert 0 < float(seconds) < 10


def test_every_name_of_the_page_exists() -> None:
    import convoy
    from convoy import graph_executor, relay
    from convoy.relay import tvm018

    assert graph_executor and relay.op.contrib.cutlass
    assert tvm018.nd
    for name in re.findall(r"`convoy\.([\w.]+)`", PAGE.read_text()):
        found = convoy
        for part in name.split("."):
            found = getattr(found, part)


def test_the_error_of_the_page() -> None:
    from convoy import relay
    from convoy.errors import UnsupportedOp

    text = '#[version = "0.0.5"]\ndef @main(%x: float32) {\n  add(%x, nn.rellu(%x))\n}'
    with pytest.raises(UnsupportedOp) as caught:
        relay.parse(text, "net.relay")
    found = re.search(r"```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    assert found.group(1).rstrip() == str(caught.value).rstrip()
