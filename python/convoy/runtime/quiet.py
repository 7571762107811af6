"""Suppress TVM's log lines for each constant.

Saving and loading an executable logs one warning for each constant ("Scope Saving", "Scope
Loaded"), hundreds of lines for a network, straight to the process's stderr.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator

_NOISE = (b"Scope Saving:", b"Scope Loaded:")
_lock = threading.Lock()


@contextlib.contextmanager
def without_scope_warnings() -> Iterator[None]:
    """Hold back stderr for the duration and print what is not such a line afterwards.

    Where stderr has no file descriptor nothing is held back.
    """
    with _lock:
        try:
            sys.stderr.flush()
            saved = os.dup(2)
        except (OSError, AttributeError, ValueError):
            yield
            return
        with tempfile.TemporaryFile() as held:
            os.dup2(held.fileno(), 2)
            try:
                yield
            finally:
                os.dup2(saved, 2)
                os.close(saved)
                held.seek(0)
                kept = [line for line in held if not any(noise in line for noise in _NOISE)]
                if kept:
                    os.write(2, b"".join(kept))
