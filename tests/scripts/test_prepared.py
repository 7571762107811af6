"""Workers of the benchmarks: ready together, timed one at a time, and what goes wrong is said."""

from __future__ import annotations

import importlib
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("prepared")


def worker(prepared: Any, code: str) -> Any:
    head = f"import sys, time, json; sys.path.insert(0, {str(SCRIPTS)!r}); from prepared import *\n"
    return prepared.Prepared([sys.executable, "-c", head + code])


def test_workers_are_timed_one_at_a_time(prepared: Any) -> None:
    timed = "ready(); a = time.time(); time.sleep(0.2); print(json.dumps([a, time.time()]))"
    workers = [worker(prepared, timed) for _ in range(3)]
    prepared.prepare(workers, 3, 60)
    spans = [w.go() for w in workers]
    assert all(first[1] <= second[0] for first, second in pairwise(spans))


def test_what_workers_say_when_they_fail(prepared: Any) -> None:
    early = worker(prepared, "sys.exit('no such network')")
    late = worker(prepared, "ready(); sys.exit('lost the GPU')")
    silent = worker(prepared, "ready()")
    over = worker(prepared, "print(json.dumps({'skipped': 'not there'}))")
    prepared.prepare([early, late, silent, over], 4, 60)
    for failing, words in ((early, "no such network"), (late, "lost the GPU"), (silent, "result")):
        with pytest.raises(RuntimeError, match=words):
            failing.go()
    assert over.go() == {"skipped": "not there"}


def test_a_worker_that_is_never_ready_is_stopped(prepared: Any) -> None:
    slow = worker(prepared, "time.sleep(60)")
    quick = worker(prepared, "ready(); print(1)")
    started = time.perf_counter()
    prepared.prepare([quick, slow], 2, 3)
    assert time.perf_counter() - started < 30
    assert quick.go() == 1
    with pytest.raises(RuntimeError):
        slow.go()
