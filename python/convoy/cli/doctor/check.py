"""Findings, and probes that run in a subprocess."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from dataclasses import dataclass
from typing import Any, Literal

from ...child_process import python_code

Status = Literal["found", "missing", "problem"]
Need = Literal["cpu", "gpu", "advice"]
TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Check:
    """The state of one component.

    Attributes:
        name: The component.
        status: Whether it is found, missing, or has a problem.
        detail: Version and path, or what is wrong.
        remedy: The command to enter; empty if none is needed.
        need: The path that does not work without it: ``cpu`` (placing from records, running on the
            CPU), ``gpu`` (measuring and running on a GPU) or none (``advice``).
    """

    name: str
    status: Status
    detail: str
    remedy: str = ""
    need: Need = "cpu"


class ProbeDied(Exception):
    """The process of a probe crashed, hung or could not answer."""


def ask(code: str, *arguments: str, timeout_s: float | None = None) -> Any:
    """Run Python code in a new process and return the JSON value of its last line of output.

    Raises:
        ProbeDied: With the signal, the last line of its error output, or the time limit.
    """
    limit = TIMEOUT_S if timeout_s is None else timeout_s
    try:
        done = subprocess.run(python_code(code, *arguments), capture_output=True, timeout=limit)
    except subprocess.TimeoutExpired:
        raise ProbeDied(f"no answer within {limit:.0f} s") from None
    if done.returncode < 0:
        raise ProbeDied(f"the process was killed by {signal.Signals(-done.returncode).name}")
    errors = done.stderr.decode(errors="replace").strip().splitlines()
    if done.returncode:
        words = re.sub(r"^OSError: ", "", errors[-1]) if errors else ""
        raise ProbeDied(words or f"exit code {done.returncode}")
    try:
        return json.loads(done.stdout.decode(errors="replace").strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise ProbeDied("no answer") from None
