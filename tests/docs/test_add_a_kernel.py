"""The page about adding a kernel speaks of files and names that exist."""

from __future__ import annotations

import re
from pathlib import Path

from convoy.backends.kernels.sm90.stem import StemFpropKernel

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/guides/add-a-kernel.md").read_text()


def test_the_files_of_the_example_hold_what_the_page_says() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| .* \| `([^`]+)` \|$", PAGE, re.MULTILINE)
    assert len(rows) == 10
    for path, name in rows:
        assert name in (ROOT / path).read_text(), path


def test_every_path_of_the_page_exists() -> None:
    named = re.findall(r"`((?:codegen|python|tests|backends|kernels)/[\w/.]+)`", PAGE)
    packages = (ROOT, ROOT / "python/convoy", ROOT / "python/convoy/backends")
    missing = [path for path in named if not any((base / path).exists() for base in packages)]
    assert named and not missing


def test_the_source_is_what_the_kernel_is_compiled_from() -> None:
    source = StemFpropKernel(3, 7, 7, relu=True).source
    code = source.split("\n", 1)[1]  # without the comment that names it
    assert f"```cpp\n{code}```" in PAGE
