"""Load the GPU's libraries while a network is normalized.

The first heuristics and the first plan of cuDNN and cuBLASLt load some hundred megabytes of code,
and the first kernel creates the CUDA context: a second or more, which would count as measuring.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from ..backends.base import Backend
from ..backends.load import load_candidate
from ..ir.candidate import Decline
from ..ir.device import Device
from ..ir.workload import Workload
from ..runtime.library import function
from .problem import make_problem

_log = logging.getLogger("convoy")
#: A convolution that every library takes, and whose kernels take microseconds.
_SMALL = Workload("fprop", n=1, h=8, w=8, c=64, k=64, r=1, s=1)


@contextmanager
def warm_up(backends: Sequence[Backend], device: Device) -> Iterator[None]:
    """Run one small kernel of each backend in a thread, and wait for it at the end of the context.

    What fails here is left to fail, and to be reported, where it is needed.
    """
    thread = threading.Thread(target=_run_all, args=(backends, device))
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _run_all(backends: Sequence[Backend], device: Device) -> None:
    for backend in backends:
        try:
            _run_first(backend, device)
        except Exception as err:  # of a library or a backend, whatever it is
            _log.debug("%s is not loaded ahead: %s", backend.name, err)


def _run_first(backend: Backend, device: Device) -> None:
    """Run the backend's first candidate that needs no compiler."""
    if backend.accepts(_SMALL, device) is not None:
        return
    (answer,) = backend.propose_all([_SMALL], device, compiled=True)
    if isinstance(answer, Decline) or not answer:
        return
    run = load_candidate(backend, _SMALL, answer[0], device)
    run(*make_problem(_SMALL, np.random.default_rng(0)).tensors)
    function("cuda.synchronize")(0)
