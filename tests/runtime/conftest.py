"""The stand-ins, compiled once for all tests of the runtime."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from support import Fakes


@pytest.fixture(scope="session")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> Fakes:
    return Fakes(tmp_path_factory.mktemp("fakes"))
