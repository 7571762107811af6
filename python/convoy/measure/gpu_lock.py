"""The lock of a GPU, so that one process at a time measures on it.

Kernels of two processes share a GPU by time slices, so that concurrent timings are wrong for both.
Only timing is locked: processes may compile while others measure.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator

import filelock

from .. import paths
from ..runtime.library import call_json

#: Seconds that a process waits for the lock. Timing takes a second or so; a process that holds it
#: for longer is stuck, and the others go on without it and wait no more until it is free.
LONGEST_S = 60.0

_waited_s = 0.0


@contextlib.contextmanager
def gpu_lock(device: int = 0) -> Iterator[bool]:
    """Keep other processes of this user from measuring on the GPU of that index.

    Yields whether the lock is held: not after LONGEST_S of waiting, nor where no lock file can be
    made (a cache folder that is read-only, a file system without locks). Reentrant.
    """
    lock = _lock(device)
    try:
        with _waiting():
            lock.acquire(poll_interval=0.005)
    except (filelock.Timeout, OSError, NotImplementedError):
        lock.timeout = 0.0
        yield False
        return
    lock.timeout = LONGEST_S
    try:
        yield True
    finally:
        lock.release()


def own_clock() -> float:
    """Return ``time.monotonic()`` without the seconds that this process has waited for locks, so
    that a budget of measuring lasts as long beside others that measure."""
    return time.monotonic() - _waited_s


@contextlib.contextmanager
def _waiting() -> Iterator[None]:
    global _waited_s
    start = time.monotonic()
    try:
        yield
    finally:
        _waited_s += time.monotonic() - start


@functools.cache
def _lock(device: int) -> filelock.BaseFileLock:
    folder = paths.cache_dir()
    with contextlib.suppress(OSError):  # acquiring fails then
        folder.mkdir(parents=True, exist_ok=True)
    uuid = call_json("cuda.device_info", device)["uuid"]
    return filelock.FileLock(folder / f"gpu-{uuid}.lock", timeout=LONGEST_S)
