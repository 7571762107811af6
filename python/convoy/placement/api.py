"""``convoy.place``: the steps from a network to its placement."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..backends.base import Backend
from ..cost.model import CostModel, Progress
from ..cost.price import price
from ..cost.sources import cost_model, named
from ..errors import InvalidOption, NoGpu
from ..ir import objective as objectives
from ..ir.device import Device
from ..ir.plan import Plan
from ..partition.alternatives import plausible_workloads
from .placement import Placement, restore
from .select import SEARCHES, explained, select

if TYPE_CHECKING:
    import tvm

    from ..ir.workload import Workload
    from ..partition.match_graph import MatchGraph

PRECISIONS = ("float32", "tf32", "float16", "bfloat16")
BACKENDS = ("cudnn", "cutlass", "hopper", "tvm")
SEARCH = "exact"


def place(
    mod: tvm.IRModule,
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
    some have no measurement), "greedy" (each convolution for itself, in program order) or "evolve"
    (the exact cover refined by the simulated schedule and, where candidates are measured, by the
    time of whole compiled networks, for which there are about ``seconds``); see docs/placer.md.
    ``plan`` takes an earlier decision over as it is: nothing is searched or measured. With
    ``explain`` the placement carries the reasons of every decision and what other objectives
    would do.

    Raises NoCandidate, InvalidOption (also for a plan of another network) and the errors of
    normalize.
    """
    objectives.check(objective)
    _check(precision, search, plan)
    used = find_backends(backends)
    offload = [backend for backend in used if backend.name != "tvm"]
    if plan is not None:
        return restore(_graphs(mod, params, precision, offload, plan.device), plan)
    present = _present_device()
    device = device or present or Device()
    measure = True if costs == "measured" else measure
    measure = (present == device and costs is None) if measure is None else measure
    if measure and present is None:
        raise NoGpu("measure=True", "a GPU", "Leave measure out to place from records.")
    environment = ""
    if costs is None or costs == "measured":
        costs, environment = cost_model(offload, device, records, measure, most_measured, progress)
    elif isinstance(costs, str):
        costs = named(costs, device, records)

    graphs = distinct(_graphs(mod, params, precision, offload, device))
    offers = price(graphs, offload, device, costs, joint=explain or search != "greedy")
    placed = select(
        graphs,
        offers,
        objective,
        search,
        source=costs.source,
        environment=environment,
        timed=_timed(precision, backends) if measure else None,
        seconds=seconds,
    )
    if explain:
        return explained(placed, offers, "greedy" if search == "greedy" else "exact")
    return placed


def _check(precision: str, search: str, plan: Plan | None) -> None:
    if precision not in PRECISIONS:
        raise InvalidOption(f"precision {precision!r}", f"one of {', '.join(PRECISIONS)}")
    if search not in SEARCHES:
        raise InvalidOption(f"search {search!r}", f"one of {', '.join(SEARCHES)}")
    if plan is not None and not isinstance(plan, Plan):
        raise InvalidOption(f"a plan of type {type(plan).__name__}", "a Plan: Plan.loads(text)")


def _timed(precision: str, backends: Sequence[str | Backend]) -> Callable[[Placement], list[float]]:
    """Compile and time whole placements on the GPU."""
    from ..measure.trial import time_placement

    return lambda placed: time_placement(placed, precision, backends)


def normal_forms(
    mod: tvm.IRModule, params: Mapping[str, Any] | None, precision: str
) -> Iterator[tvm.IRModule]:
    """The normal forms of a network among which placement chooses.

    In 16 bits there are others for the first convolution: space to depth, and padded channels.
    """
    from ..normalize.normal_form import normalize

    yield normalize(mod, params, dtype=precision)
    if precision in ("float16", "bfloat16"):
        yield normalize(mod, params, dtype=precision, space_to_depth=True)
        yield normalize(mod, params, dtype=precision, pad_channels=1)


def _graphs(
    mod: tvm.IRModule,
    params: Mapping[str, Any] | None,
    precision: str,
    backends: Sequence[Backend],
    device: Device,
) -> Iterator[MatchGraph]:
    from ..partition.partition import partition

    for normal in normal_forms(mod, params, precision):
        yield partition(normal, backends, device)


def distinct(graphs: Iterable[MatchGraph]) -> list[MatchGraph]:
    """Match graphs without those that ask for the same workloads as an earlier one."""
    seen: list[list[Workload]] = []
    kept = []
    for graph in graphs:
        workloads = [subgraph.require_workload() for subgraph in graph.subgraphs]
        if workloads not in seen:
            seen.append(workloads)
            kept.append(graph)
    return kept


def workloads_of(
    mod: tvm.IRModule,
    params: Mapping[str, Any] | None = None,
    *,
    precision: str = "float16",
    backends: Sequence[str | Backend] = BACKENDS,
    device: Device | None = None,
    search: str = SEARCH,
) -> list[Workload]:
    """The distinct workloads whose measurements :func:`place` asks for in a search, in program
    order.

    ``device`` defaults to the GPU that is present, otherwise an H200. Raises what
    :func:`place` raises before it measures.
    """
    device = device or _present_device() or Device()
    offload = [backend for backend in find_backends(backends) if backend.name != "tvm"]
    names = [backend.name for backend in offload]
    found: dict[Workload, None] = {}
    for graph in distinct(_graphs(mod, params, precision, offload, device)):
        found.update(dict.fromkeys(plausible_workloads(graph, names, search != "greedy")))
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
