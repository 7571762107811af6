"""The corpus of modules printed and saved by TVM 0.18, where it is at hand."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "CONVOY_RELAY_CORPUS"


def corpus_path() -> Path | None:
    path = os.environ.get(VARIABLE)
    return Path(path) if path and Path(path, "manifest.json").exists() else None


def corpus_names(kind: str) -> list[str]:
    """Names of the corpus's modules of a kind; without a corpus one name, whose tests skip."""
    path = corpus_path()
    if path is None:
        return ["corpus"]
    manifest = json.loads((path / "manifest.json").read_text())
    return [name for name, entry in manifest.items() if entry["kind"] == kind]


@pytest.fixture(scope="session")
def corpus() -> Path:
    path = corpus_path()
    if path is None:
        pytest.skip(f"{VARIABLE} is not set")
    return path


@pytest.fixture(scope="session")
def manifest(corpus: Path) -> dict[str, Any]:
    return json.loads((corpus / "manifest.json").read_text())
