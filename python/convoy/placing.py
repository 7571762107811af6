"""Placing a network: its normal forms, how much each region covers, and what runs it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .backends.base import Backend, Candidate, Decline, Device
from .errors import InvalidOption, NoGpu
from .placement import objective as objectives
from .placement.cost import CostModel, Progress
from .placement.plan import Plan

if TYPE_CHECKING:
    from .measure.measurement import Measurement
    from .placement.place import Options
    from .workload import Workload

PRECISIONS = ("float32", "tf32", "float16", "bfloat16")
BACKENDS = ("cudnn", "cutlass", "hopper", "tvm")
SEARCHES = ("greedy", "exact")


@dataclass(frozen=True)
class Native:
    """A convolution or product that is left to TVM's own kernels, and why nobody takes it."""

    root: str
    workload: Workload
    declines: tuple[Decline, ...]

    def __str__(self) -> str:
        reasons = "; ".join(f"{d.backend}: {d.reason}" for d in self.declines)
        return f"{self.workload.key} ({reasons or 'every candidate failed'})"


@dataclass(frozen=True)
class Placement:
    """A normalised module with its chosen regions and their plan.

    ``native`` are the convolutions and products that no backend's candidate can run and TVM
    compiles itself.
    """

    module: Any
    regions: Sequence[Any]
    plan: Plan
    native: tuple[Native, ...] = ()


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
    search: str = "greedy",
    plan: Plan | None = None,
    progress: Progress | None = None,
) -> Placement:
    """Bring a Relax module to normal form and choose a kernel for every region of it.

    With a GPU candidates are measured unless records hold them (``measure=False`` forbids it), of
    each backend at most ``most_measured`` for a workload, its best guesses; without a GPU,
    shipped records and the user's own decide. ``records`` is the file for the user's own
    (default: in the data folder of the user). ``search`` is "greedy" (each convolution for itself,
    in program order) or "exact" (the cheapest cover of the whole graph, see docs/placer.md).
    ``plan`` takes an earlier decision over as it is: nothing is searched or measured.

    Raises NoCandidate, InvalidOption (also for a plan of another network) and the errors of
    graph.normalize.
    """
    objectives.check(objective)
    if precision not in PRECISIONS:
        raise InvalidOption(f"precision {precision!r}", f"one of {', '.join(PRECISIONS)}")
    if search not in SEARCHES:
        raise InvalidOption(f"search {search!r}", f"one of {', '.join(SEARCHES)}")
    if plan is not None:
        return _restore(_normal_forms(mod, params, precision), plan, find_backends(backends))
    used = find_backends(backends)
    present = _present_device()
    device = device or present or Device()
    measure = (present == device) if measure is None else measure
    if measure and present is None:
        raise NoGpu("measure=True", "a GPU", "Leave measure out to place from records.")
    offload = [backend for backend in used if backend.name != "tvm"]
    costs, environment = _cost_model(offload, device, records, measure, most_measured, progress)
    options: dict[Workload, Options] = {}  # what the forms share is asked for once
    placements = [
        _place_form(form, offload, device, costs, options, objective, environment, search)
        for form in _normal_forms(mod, params, precision)
    ]
    return min(placements, key=_order)  # of equal ones the first


def workloads_of(
    mod: Any,
    params: Mapping[str, Any] | None = None,
    *,
    precision: str = "float16",
    backends: Sequence[str | Backend] = BACKENDS,
    device: Device | None = None,
) -> list[Workload]:
    """The distinct workloads whose figures :func:`place` asks for, in program order.

    ``device`` defaults to the GPU that is present, otherwise an H200. Raises what
    :func:`place` raises before it measures.
    """
    from . import graph

    device = device or _present_device() or Device()
    offload = [backend for backend in find_backends(backends) if backend.name != "tvm"]
    found: dict[Workload, None] = {}
    for form in _normal_forms(mod, params, precision):
        for group in _groups(graph.find_regions(form), offload, device):
            found.update(dict.fromkeys(region.workload for region in group))
    return list(found)


def _normal_forms(mod: Any, params: Mapping[str, Any] | None, precision: str) -> list[Any]:
    """The ways to present a network that are weighed against each other."""
    from . import graph

    forms = [graph.normalize(mod, params, dtype=precision)]
    if precision in ("float16", "bfloat16"):  # other ways to present the first convolution
        forms.append(graph.normalize(mod, params, dtype=precision, space_to_depth=True))
        forms.append(graph.normalize(mod, params, dtype=precision, pad_channels=1))
    return _distinct(forms)


def _groups(regions: Any, backends: Sequence[Backend], device: Device) -> list[list[Any]]:
    """For each root the regions worth considering."""
    from .placement import alternatives

    accepts = [lambda w, b=b: b.accepts(w, device) is None for b in backends]  # type: ignore[misc]
    return alternatives.plausible(regions, accepts)


def _order(placement: Placement) -> tuple[int, int, float]:
    """Cheapest first; what a plan's total does not hold (TVM's own kernels, choices without
    figures) goes before it."""
    unknown = sum(not choice.chosen.measurement.ok for choice in placement.plan.choices)
    return len(placement.native), unknown, placement.plan.total_us()


def _distinct(forms: Sequence[Any]) -> list[Any]:
    """Normal forms without those that offer the same workloads as an earlier one."""
    from . import graph

    seen: list[list[Workload]] = []
    kept = []
    for form in forms:
        workloads = [region.workload for region in graph.find_regions(form)]
        if workloads not in seen:
            seen.append(workloads)
            kept.append(form)
    return kept


def _place_form(
    normal: Any,
    backends: Sequence[Backend],
    device: Device,
    costs: CostModel,
    options: dict[Workload, Options],
    objective: str,
    environment: str,
    search: str,
) -> Placement:
    """Choose how much each region of a normal form covers and what runs it. ``options`` are those
    known from other forms; new ones are added."""
    from . import graph
    from .placement import alternatives
    from .placement.place import gather, rank
    from .placement.place import place as choose

    regions = graph.find_regions(normal)
    groups = _groups(regions, backends, device)
    asked = [r.workload for group in groups for r in group]
    options.update(gather([w for w in asked if w not in options], backends, device, costs))

    def cheapest(workload: Workload) -> float | None:
        found = options[workload]
        if ranked := rank(found.scored, objective):
            return objectives.own_cost(ranked[0].measurement, objective)[0]
        return None if found.unknown else float("inf")

    chosen = alternatives.choose(groups, cheapest, device)
    runnable = [r for r in chosen if cheapest(r.workload) != float("inf")]
    named = [(r.id, r.workload) for r in runnable]
    plan = choose(named, backends, device, costs, objective, environment, options)
    if search == "exact":
        plan = _exact(normal, regions, options, plan)
        runnable = [regions.by_id[choice.region] for choice in plan.choices]
    return _placement(normal, regions, runnable, plan, backends)


def _placement(
    normal: Any, regions: Any, chosen: Sequence[Any], plan: Plan, backends: Sequence[Backend]
) -> Placement:
    """A placement of the chosen regions, with the reasons for what is left to TVM."""
    placed = {r.root for r in chosen}
    bare = {region.root: region.workload for region in regions}  # of each root the shortest
    native = tuple(
        Native(root, workload, _declines(workload, backends, plan.device))
        for root, workload in bare.items()
        if root not in placed
    )
    return Placement(normal, chosen, plan, native)


def _restore(forms: Sequence[Any], plan: Plan, backends: Sequence[Backend]) -> Placement:
    """The placement that a plan describes, in the form of the network that it was made for."""
    from . import graph

    for normal in forms:
        regions = graph.find_regions(normal)
        chosen = [regions.by_id.get(choice.region) for choice in plan.choices]
        found = [region.workload if region else None for region in chosen]
        if found == [choice.workload for choice in plan.choices]:
            offload = [backend for backend in backends if backend.name != "tvm"]
            return _placement(normal, regions, chosen, plan, offload)
    raise InvalidOption(
        f"a plan of {len(plan.choices)} regions that are not all of this network",
        "the plan of the same network, batch size and precision",
    )


def _exact(normal: Any, regions: Any, options: Mapping[Workload, Options], greedy: Plan) -> Plan:
    """The cheapest cover of the whole graph; the greedy plan where some of its regions have no
    figures, with a warning."""
    from . import graph
    from .placement.cover import find_cover
    from .placement.from_regions import cover_to_plan, regions_to_graph
    from .placement.match_graph import Form, Op

    if not all(choice.chosen.measurement.ok for choice in greedy.choices):
        warnings.warn(
            "the exact search needs figures of every region; the greedy choice was taken",
            stacklevel=4,
        )
        return greedy
    flow = graph.dataflow(normal)
    matches, _ = regions_to_graph(
        [Op(op.name, op.inputs, op.elements) for op in flow.operations],
        tuple((name, Form()) for name in flow.parameters),
        [(name, None) for name in flow.results],
        regions,
        options,
        greedy.device,
    )
    cover = find_cover(matches, greedy.objective)
    return cover_to_plan(cover, options, greedy.device, greedy.source, greedy.environment)


def _declines(
    workload: Workload, backends: Sequence[Backend], device: Device
) -> tuple[Decline, ...]:
    answers = [backend.accepts(workload, device) for backend in backends]
    return tuple(answer for answer in answers if answer is not None)


def find_backends(names: Sequence[str | Backend]) -> list[Backend]:
    """Backends by name; backends themselves stay. Raises InvalidOption for an unknown name."""
    from .backends import registry

    return [name if isinstance(name, Backend) else registry.get(name) for name in names]


def _present_device() -> Device | None:
    from .runtime import current_device

    try:
        return current_device()
    except NoGpu:
        return None


def _cost_model(
    backends: Sequence[Backend],
    device: Device,
    records: str | os.PathLike[str] | None,
    measure: bool,
    most_measured: int | None,
    progress: Progress | None,
) -> tuple[CostModel, str]:
    """The cost model of a placement, and the id of the environment that it speaks of."""
    from . import paths
    from .measure import environment as environments
    from .measure.record import Record
    from .measure.records import RecordStore
    from .placement.cost import MeasuredCost, RecordedCost

    own = Path(records) if records else paths.user_records_file()
    store = RecordStore([paths.records_dir()], write_to=own)
    if not measure:
        known = environments.for_device(device)
        return RecordedCost(store, known), known.id
    here = environments.current()
    by_name = {backend.name: backend for backend in backends}

    def save(workload: Workload, candidate: Candidate, figure: Measurement) -> None:
        backend = by_name[candidate.backend]
        narrowed = here.narrowed(backend.libraries, backend.kernel_source(candidate))
        store.append(Record(workload, candidate, figure, narrowed))

    recorded = RecordedCost(store, here)
    return MeasuredCost(backends, device, recorded, save, progress, most_measured), here.id
