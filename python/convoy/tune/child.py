"""The process that measures: ``python -m convoy.tune.child SPEC READ_FD WRITE_FD``.

It runs kernels that may fault or hang, so it holds nothing worth keeping: requests come in as JSON
lines through one pipe and answers go out through another, and whoever supervises it (process.py)
kills and replaces it. Two requests make a measurement: one names workload and candidate, to get
ready for without the GPU, the next gives the process its turn on the GPU. Standard output stays
free for whatever libraries print.
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
from .measurer import Spec

_PR_SET_PDEATHSIG = 1


def main(spec: str, requests: TextIO, answers: TextIO) -> None:
    """Serve until the requests end. The first answer says what the process measures on."""

    def answer(**content: Any) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    try:
        measurer = Spec.loads(spec).make()
        device, environment = measurer.describe()
    except Exception as err:
        answer(error=f"{type(err).__name__}: {err}")
        return
    answer(device=vars(device), environment=environment.to_json())
    for line in requests:
        request = json.loads(line)
        started = time.monotonic()
        try:
            if "workload" in request:
                workload = Workload.from_json(request["workload"])
                candidate = Candidate.from_json(request["candidate"])
                measurer.ready(workload, candidate)
                answer(ready=True)
                continue
            measurement = measurer.measure(workload, candidate, request["best_us"])
        except Exception as err:
            answer(lost=f"{type(err).__name__}: {err}"[:500])
            return
        answer(measurement=measurement.to_json(), seconds=time.monotonic() - started)


def _die_with_parent() -> None:
    """A supervisor that is killed must not leave a process behind that occupies the GPU."""
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
