"""Predict a network's workloads and schedule without compiling it."""

from __future__ import annotations

from collections.abc import Sequence

import tvm

from ..backends.base import Backend
from ..graph.bind import Params
from ..ir.defaults import BACKENDS
from ..ir.device import Device
from ..ir.schedule import Schedule
from ..ir.workload import Workload
from ..lower.target import cuda_target
from ..normalize.forms import normal_forms
from ..partition.alternatives import plausible_workloads
from ..partition.partition import distinct, partition
from ..placement.placement import Placement
from ..runtime import present_device
from ..streams.schedule import check_streams, schedule
from ..threads import one_at_a_time
from .lowering import lower_to_calls
from .options import SEARCH, find_backends


def workloads_of(
    mod: tvm.IRModule,
    params: Params | None = None,
    *,
    precision: str = "float16",
    backends: Sequence[str | Backend] = BACKENDS,
    device: Device | None = None,
    search: str = SEARCH,
) -> list[Workload]:
    """The distinct workloads whose measurements :func:`place` requests in a search, in program
    order.

    ``device`` defaults to the GPU that is present, otherwise an H200. Raises the errors that
    :func:`place` raises before it measures.
    """
    device = device or present_device() or Device()
    offload = [backend for backend in find_backends(backends) if backend.name != "tvm"]
    names = [backend.name for backend in offload]
    found: dict[Workload, None] = {}
    forms = normal_forms(mod, params, precision, device.arch)
    for graph in distinct(partition(form, offload, device) for form in forms):
        found.update(dict.fromkeys(plausible_workloads(graph, names, search != "greedy")))
    return list(found)


@one_at_a_time
def predict_schedule(placement: Placement, streams: int | str = "auto") -> Schedule:
    """The schedule of a placed network as the simulator predicts it; nothing is compiled.

    Raises InvalidOption, and NotSchedulable for a network with operations whose effects are
    unknown.
    """
    streams = check_streams(streams)
    plan = placement.plan
    _, program = lower_to_calls(placement, cuda_target(plan.device))
    return schedule(program, plan, streams, compiled=False).schedule
