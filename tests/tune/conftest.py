"""Fixtures for tuning without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from convoy.records.store import RecordStore
from convoy.tune.local_executor import LocalExecutor
from convoy.tune.measurer import Spec


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """What FakeMeasurer notes: lines of "ready|measure|end|compile WORKLOAD KERNEL PID GPU"."""
    path = tmp_path / "measured.log"
    path.touch()
    return path


@pytest.fixture
def spec(log: Path) -> Callable[..., Spec]:
    def make(**options: Any) -> Spec:
        return Spec("tests.tune.fakes:FakeMeasurer", {"log": str(log), **options})

    return make


@pytest.fixture
def executor(
    spec: Callable[..., Spec], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., LocalExecutor]]:
    """Makes executors with fake measurers, and closes them."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    made = []

    def make(gpus: tuple[str | None, ...] = ("0",), timeout_s: float = 60, **options: Any):
        made.append(LocalExecutor(spec(**options), gpus, compile_jobs=2, timeout_s=timeout_s))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    return RecordStore(write_to=tmp_path / "records.jsonl")
