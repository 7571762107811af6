"""Fixtures that several tests share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record file of the module's tests, which measure each candidate once."""
    return tmp_path_factory.mktemp("records") / "own.jsonl"
