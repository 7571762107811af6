"""The README's code runs as it stands there, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")]


def test_code_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks build on each other; those that read a file which the user has are left out."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    runnable = [block for block in blocks if "onnx.load" not in block]
    assert len(runnable) >= 2
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for block in runnable:
        exec(compile(block, "README.md", "exec"), namespace)
    assert (tmp_path / "network.so").is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)", prose):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
