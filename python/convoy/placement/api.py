"""``convoy.place``: a network and options to a placement."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..backends.base import Backend
from ..cost.model import CostModel, Progress
from ..cost.sources import cost_model, named
from ..errors import InvalidOption, NoGpu
from ..ir import objective as objectives
from ..ir.device import Device
from ..ir.plan import Plan
from .placer import (
    Placement,
    Placer,
    every_form,
    joint_workloads,
    normal_forms,
    plausible_groups,
    restore,
)

if TYPE_CHECKING:
    from ..ir.workload import Workload

PRECISIONS = ("float32", "tf32", "float16", "bfloat16")
BACKENDS = ("cudnn", "cutlass", "hopper", "tvm")
SEARCHES = ("greedy", "exact", "evolve")
SEARCH = "exact"


def place(
    mod: Any,
    params: Mapping[str, Any] | None = None,
    *,
    precision: str = "float16",
    objective: str = "graph",
    backends: Sequence[str | Backend] = BACKENDS,
    records: str | os.PathLike[str] | None = None,
    device: Device | None = None,
    measure: bool | None = None,
    most_measured: int | None = None,
    costs: str | CostModel | None = None,
    search: str = SEARCH,
    seconds: float = 60.0,
    plan: Plan | None = None,
    explain: bool = False,
    progress: Progress | None = None,
) -> Placement:
    """Bring a Relax module to normal form and choose a kernel for every subgraph of it.

    With a GPU candidates are measured unless records hold them (``measure=False`` forbids it), of
    each backend at most ``most_measured`` for a workload, its best guesses; without a GPU,
    shipped records and the user's own decide. ``records`` is the file for the user's own
    (default: in the data folder of the user). ``costs`` takes measurements from elsewhere:
    "recorded" from records alone, "predicted" from records of other workloads, or a CostModel of
    your own; "measured" is the same as ``measure=True``.

    ``search`` is "exact" (the cheapest cover of the whole graph; each convolution for itself where
    some have no figures), "greedy" (each convolution for itself, in program order) or "evolve"
    (the exact cover refined by the simulated schedule and, where candidates are measured, by the
    time of whole compiled networks, for which there are about ``seconds``); see docs/placer.md.
    ``plan`` takes an earlier decision over as it is: nothing is searched or measured. With
    ``explain`` the placement carries the reasons of every decision and what other objectives
    would do.

    Raises NoCandidate, InvalidOption (also for a plan of another network) and the errors of
    graph.normalize.
    """
    objectives.check(objective)
    if precision not in PRECISIONS:
        raise InvalidOption(f"precision {precision!r}", f"one of {', '.join(PRECISIONS)}")
    if search not in SEARCHES:
        raise InvalidOption(f"search {search!r}", f"one of {', '.join(SEARCHES)}")
    if plan is not None:
        if not isinstance(plan, Plan):
            raise InvalidOption(f"a plan of type {type(plan).__name__}", "a Plan: Plan.loads(text)")
        return restore(every_form(mod, params, precision), plan, find_backends(backends))
    used = find_backends(backends)
    present = _present_device()
    device = device or present or Device()
    measure = True if costs == "measured" else measure
    measure = (present == device and costs is None) if measure is None else measure
    if measure and present is None:
        raise NoGpu("measure=True", "a GPU", "Leave measure out to place from records.")
    used = [backend for backend in used if backend.name != "tvm"]
    environment = ""
    if costs is None or costs == "measured":
        costs, environment = cost_model(used, device, records, measure, most_measured, progress)
    elif isinstance(costs, str):
        costs = named(costs, device, records)
    forms = normal_forms(mod, params, precision)
    placer = Placer(forms, used, device, costs, environment)
    placed = _searched(placer, objective, search, seconds, precision if measure else "", backends)
    if explain:
        others = "greedy" if search == "greedy" else "exact"
        placed = dataclasses.replace(placed, explanation=placer.explain(placed, others))
    return placed


def _searched(
    placer: Placer,
    objective: str,
    search: str,
    seconds: float,
    precision: str,
    backends: Sequence[str | Backend],
) -> Placement:
    """``precision`` is empty where whole placements must not be compiled and timed."""
    if search != "evolve":
        return placer.place(objective, search)
    timed = None
    if precision:
        from ..measure.trial import time_placement

        def timed(placed: Placement) -> list[float]:
            return time_placement(placed, precision, backends)

    return placer.evolve(objective, timed, seconds)


def workloads_of(
    mod: Any,
    params: Mapping[str, Any] | None = None,
    *,
    precision: str = "float16",
    backends: Sequence[str | Backend] = BACKENDS,
    device: Device | None = None,
    search: str = SEARCH,
) -> list[Workload]:
    """The distinct workloads whose figures :func:`place` asks for in a search, in program order.

    ``device`` defaults to the GPU that is present, otherwise an H200. Raises what
    :func:`place` raises before it measures.
    """
    from ..partition.subgraphs import find_subgraphs

    device = device or _present_device() or Device()
    offload = [backend for backend in find_backends(backends) if backend.name != "tvm"]
    found: dict[Workload, None] = {}
    for form in normal_forms(mod, params, precision):
        subgraphs = find_subgraphs(form)
        for group in plausible_groups(subgraphs, offload, device):
            found.update(dict.fromkeys(subgraph.workload for subgraph in group))
        if search != "greedy":
            found.update(dict.fromkeys(joint_workloads(subgraphs, offload, device)))
    return list(found)


def find_backends(names: Sequence[str | Backend]) -> list[Backend]:
    """Backends by name; backends themselves stay. Their patterns are registered.

    Raises InvalidOption for an unknown name.
    """
    from ..backends import registry

    if isinstance(names, str):
        raise InvalidOption(f"backends={names!r}", f"several, such as ({names!r}, 'tvm')")
    found = [name if isinstance(name, Backend) else registry.get(name) for name in names]
    own = [pattern for backend in found for pattern in backend.patterns()]
    if own:
        from ..partition import patterns

        for pattern in own:
            patterns.register(pattern)
    return found


def _present_device() -> Device | None:
    from ..runtime import current_device

    try:
        return current_device()
    except NoGpu:
        return None
