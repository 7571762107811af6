"""Workers of the benchmarks: ready together, timed one at a time; failures keep their reason."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.prepared import Prepared, caches_in, prepare, run_alone

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
HEAD = f"""
import json, os, sys, time
from pathlib import Path
sys.path.insert(0, {str(SCRIPTS)!r})
from harness.prepared import ready
"""


def worker(code: str) -> Prepared:
    return Prepared([sys.executable, "-c", HEAD + code])


def test_workers_are_timed_one_at_a_time(tmp_path: Path) -> None:
    """Each has the lock for itself while it is timed, and all were ready before the first."""
    timed = f"""
folder = Path({str(tmp_path)!r})
(folder / f"ready{{os.getpid()}}").touch()
ready()
(folder / "lock").touch(exist_ok=False)
others = len(list(folder.glob("ready*")))
(folder / "lock").unlink()
print(others)
"""
    workers = [worker(timed) for _ in range(3)]
    prepare(workers, 3, 600)
    assert [w.go() for w in workers] == [3, 3, 3]


def test_failures_of_workers_keep_their_reason() -> None:
    early = worker("sys.exit('no such network')")
    late = worker("ready(); sys.exit('lost the GPU')")
    silent = worker("ready()")
    over = worker("print(json.dumps({'skipped': 'not there'}))")
    prepare([early, late, silent, over], 4, 600)
    for failing, words in ((early, "no such network"), (late, "lost the GPU"), (silent, "result")):
        with pytest.raises(RuntimeError, match=words):
            failing.go()
    assert over.go() == {"skipped": "not there"}


def test_a_worker_that_is_never_ready_is_stopped() -> None:
    slow, quick = worker("time.sleep(3600)"), worker("ready(); print(1)")
    prepare([slow], 1, 0)
    prepare([quick], 1, 600)
    assert quick.go() == 1
    with pytest.raises(RuntimeError, match="not ready in time"):
        slow.go()


def test_a_worker_that_runs_alone(tmp_path: Path) -> None:
    environment = {**os.environ, **caches_in(tmp_path)}

    def run(code: str, seconds: float = 600) -> Any:
        return run_alone([sys.executable, "-c", HEAD + code], environment, seconds)

    told = "print('x', json.dumps(os.environ['CONVOY_CACHE_DIR']), 'y', file=sys.stderr);print(2)"
    result, errors = run(told)
    assert result == 2 and str(tmp_path) in errors
    with pytest.raises(RuntimeError, match="exit code 1: no such network"):
        run("print(1); sys.exit('no such network')")
    with pytest.raises(RuntimeError, match="no result"):
        run("print('none')")
    with pytest.raises(RuntimeError, match="not ended within 0 s"):
        run("time.sleep(3600)", 0.1)
