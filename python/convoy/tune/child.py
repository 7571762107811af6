"""The measuring child process: ``python -m convoy.tune.child SPEC READ_FD WRITE_FD``.

It runs kernels that may fault or hang, so it holds no state worth keeping, and its supervisor
(process.py) kills and replaces it. A measurement takes two requests: the first names workload and
candidate, to prepare without the GPU, the second lets the process use the GPU.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from typing import Any, TextIO

from ..ir.candidate import Candidate
from ..ir.workload import Workload
from .measurer import Measurer, Spec

_PR_SET_PDEATHSIG = 1


def main(spec: str, requests: TextIO, answers: TextIO) -> None:
    """Serve until the requests end. The first answer describes GPU and environment."""

    def answer(**content: object) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    try:
        measurer = Spec.loads(spec).make()
        device, environment = measurer.describe()
    except Exception as err:
        answer(error=f"{type(err).__name__}: {err}")
        return
    answer(device=vars(device), environment=environment.to_json())
    server = _Server(measurer)
    for line in requests:
        try:
            content = server.serve(json.loads(line))
        except Exception as err:
            answer(lost=f"{type(err).__name__}: {err}"[:500])
            return
        answer(**content)


class _Server:
    """Serves the two requests of a measurement in turn."""

    def __init__(self, measurer: Measurer) -> None:
        self._measurer = measurer
        self._prepared: tuple[Workload, Candidate] | None = None

    def serve(self, request: dict[str, Any]) -> dict[str, Any]:
        if "workload" in request:
            workload = Workload.from_json(request["workload"])
            candidate = Candidate.from_json(request["candidate"])
            self._measurer.ready(workload, candidate)
            self._prepared = workload, candidate
            return {"ready": True}
        if self._prepared is None:
            raise ValueError("a measurement without a workload")
        started = time.monotonic()
        measurement = self._measurer.measure(*self._prepared, request["best_us"])
        return {"measurement": measurement.to_json(), "seconds": time.monotonic() - started}


def _die_with_parent() -> None:
    """Have the kernel kill this process with its supervisor, so that it does not keep occupying the
    GPU."""
    parent = os.getppid()
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return  # not Linux: the end of the requests ends the process
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    _die_with_parent()
    with os.fdopen(int(sys.argv[2])) as incoming, os.fdopen(int(sys.argv[3]), "w") as outgoing:
        main(sys.argv[1], incoming, outgoing)
