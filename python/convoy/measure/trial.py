"""Time a compiled placement of a network on the GPU of this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from ..errors import CompileFailed
from . import network
from .gpu_lock import gpu_lock

if TYPE_CHECKING:
    from ..placement.placement import Placement
    from ..runtime.compiled import CompiledModule

SAMPLES = 15


def time_placement(
    placement: Placement,
    compile_placement: Callable[..., CompiledModule],
    lock: Callable[[], AbstractContextManager[object]] = gpu_lock,
) -> Sequence[float]:
    """Time one run in the mode of the plan's objective: a replayed CUDA graph, asynchronous
    launches, or a synchronization after every kernel.

    Args:
        compile_placement: Takes the placement, ``cuda_graph`` and ``streams``.
        lock: See :func:`network.time_networks`.

    Returns:
        Microseconds, several samples.

    Raises:
        CompileFailed: The placement does not compile or run.
    """
    objective = placement.plan.objective
    graph = objective == "graph"
    try:
        compiled = compile_placement(placement, cuda_graph=graph, streams="auto" if graph else 1)
        session = compiled.session()
        network.fill_inputs(session)
        sync = objective == "sync"
        sampler = network.synchronized(session) if sync else network.session_bursts(session)
        (samples,) = network.time_networks([sampler], 1, SAMPLES, lock=lock)
        return samples.us
    except Exception as err:  # any error; the other placements can still be timed
        reason = f"{type(err).__name__}: {err}"
        raise CompileFailed(f"a placement that does not run ({reason})", "one that does") from err
