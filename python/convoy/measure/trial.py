"""How long a placement takes as a whole, compiled and run on the GPU of this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.base import Backend
from ..errors import CompileFailed

if TYPE_CHECKING:
    from ..placement.placement import Placement
    from ..runtime.session import Session

SAMPLES, SAMPLE_MS = 15, 8.0


def time_placement(
    placed: Placement, precision: str, backends: Sequence[str | Backend]
) -> list[float]:
    """Microseconds of one run, several samples, in the mode of the plan's objective: a replayed
    CUDA graph, asynchronous launches, or a synchronisation after every call.

    Raises CompileFailed for a placement that does not compile or run.
    """
    from ..pipeline import compile_placement

    objective = placed.plan.objective
    graph = objective == "graph"
    try:
        compiled = compile_placement(
            placed,
            precision=precision,
            backends=backends,
            cuda_graph=graph,
            streams="auto" if graph else 1,
        )
        session = compiled.session()
        _fill(session)
        if objective == "sync":
            return _synchronised(session)
        rough = min(session.time(repeat=2, number=2))
        number = max(1, min(100, int(SAMPLE_MS / rough)))
        return [1e3 * ms for ms in session.time(SAMPLES, number)]
    except Exception as err:  # whatever it is, the other placements can still be timed
        reason = f"{type(err).__name__}: {err}"
        raise CompileFailed(f"a placement that does not run ({reason})", "one that does") from err


def _fill(session: Session) -> None:
    """Random inputs: zeros take less power, and so run at another clock."""
    rng = np.random.default_rng(0)
    for name, shape, dtype in session.input_info:
        values = rng.uniform(-1, 1, shape)
        session.set_input(name, values if "float" in dtype else np.zeros(shape, dtype))


def _synchronised(session: Session) -> list[float]:
    """Samples with a synchronisation behind every call."""

    def watch(function: Any, name: str, before: bool, result: Any, *arguments: Any) -> None:
        if not before and not name.startswith("vm."):
            session.synchronize()

    session.run()
    session.observe(watch)
    try:
        samples = []
        for _ in range(SAMPLES):
            started = time.perf_counter()
            session.run()
            session.synchronize()
            samples.append(1e6 * (time.perf_counter() - started))
        return samples
    finally:
        session.observe(None)
