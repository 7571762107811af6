"""The lock of a GPU: processes exclude each other, a stuck one does not stop the rest."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import filelock
import pytest

from convoy.measure import gpu_lock

# Takes the lock, says so, and keeps it until a line comes in.
HOLDER = """
import sys
from convoy.measure import gpu_lock
gpu_lock.call_json = lambda *_: {"uuid": "5a17"}
with gpu_lock.gpu_lock() as own:
    print(own, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def _own_lock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(gpu_lock, "call_json", lambda *_: {"uuid": "5a17"})
    monkeypatch.setenv("CONVOY_CACHE_DIR", str(tmp_path / "cache"))
    gpu_lock._lock.cache_clear()
    yield
    gpu_lock._lock.cache_clear()


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None and process.stdout.readline() == "True\n"
    yield process
    process.kill()
    process.communicate()


def test_another_process_waits(holder: subprocess.Popen[str]) -> None:
    entered = threading.Event()

    def measure() -> None:
        with gpu_lock.gpu_lock() as own:
            assert own
            entered.set()

    thread = threading.Thread(target=measure)
    thread.start()
    assert not entered.wait(0.3)
    assert holder.stdin is not None
    holder.stdin.write("\n")
    holder.stdin.flush()
    assert entered.wait(10)
    thread.join()


@pytest.mark.parametrize("frees", [True, False])
def test_waiting_does_not_count(monkeypatch: pytest.MonkeyPatch, frees: bool) -> None:
    """Of 5 seconds the first 3 pass while another process holds the lock."""
    now = [100.0]
    monkeypatch.setattr(gpu_lock, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def acquire(poll_interval: float) -> None:
        now[0] += 3.0
        if not frees:
            raise filelock.Timeout("")

    held = SimpleNamespace(acquire=acquire, release=lambda: None)
    monkeypatch.setattr(gpu_lock, "_lock", functools.cache(lambda _: held))
    start = gpu_lock.own_clock()
    with gpu_lock.gpu_lock() as own:
        assert own == frees
        now[0] += 2.0
    assert gpu_lock.own_clock() - start == pytest.approx(2.0)


def test_the_lock_of_a_process_that_died_is_free(holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    with gpu_lock.gpu_lock() as own:
        assert own


def test_a_stuck_process_is_not_waited_for(
    holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_lock, "LONGEST_S", 0.1)
    with gpu_lock.gpu_lock() as own:
        assert not own


def test_a_stuck_process_is_waited_for_once(
    holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_lock, "LONGEST_S", 0.1)
    for patience in (0.1, 0.0):
        assert gpu_lock._lock(0).timeout == patience
        with gpu_lock.gpu_lock() as own:
            assert not own
    holder.kill()
    holder.wait()
    with gpu_lock.gpu_lock() as own:
        assert own
    assert gpu_lock._lock(0).timeout == 0.1


def test_locks_nest_and_end_with_an_error() -> None:
    with pytest.raises(ZeroDivisionError), gpu_lock.gpu_lock(), gpu_lock.gpu_lock() as own:
        assert own
        raise ZeroDivisionError
    done: list[bool] = []

    def other() -> None:
        with gpu_lock.gpu_lock() as own:
            done.append(own)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(10)
    assert done == [True]


def test_nothing_is_locked_where_no_file_can_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    monkeypatch.setenv("CONVOY_CACHE_DIR", str(blocker / "below"))
    with gpu_lock.gpu_lock() as own:
        assert not own
