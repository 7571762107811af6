"""From a Relax module to a compiled one: normal form, placement, code, one artefact."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .artefact import Meta, TensorInfo, check_seal, write_sealed
from .backends.base import Backend, Candidate, Decline, Device
from .errors import CorruptArtefact, InvalidOption, NoGpu
from .placement import objective as objectives
from .placement.plan import Plan
from .quiet import without_scope_warnings
from .session import Session

if TYPE_CHECKING:
    from .measure.measurement import Measurement
    from .placement.cost import CostModel
    from .placement.place import Options
    from .workload import Workload

PRECISIONS = ("float32", "tf32", "float16", "bfloat16")
BACKENDS = ("cudnn", "cutlass", "hopper", "tvm")
SEARCHES = ("greedy", "exact")
Progress = Callable[[str, int, int], None]


@dataclass
class CompiledModule:
    """A compiled network, in memory or loaded from a file.

    ``module`` is the TVM executable (or loaded module), ``meta`` what it says of itself.
    """

    module: Any
    meta: Meta

    @property
    def plan(self) -> Plan | None:
        """The placement, None for a module that offloads nothing."""
        return Plan.from_json(self.meta.plan) if self.meta.plan else None

    def export_library(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write one self-contained shared object; ``options`` go to TVM's export_library.

        Raises CacheUnwritable where the folder cannot be written.
        """
        if not hasattr(self.module, "export_library"):
            raise InvalidOption("export of a module that was loaded from a file", "a built module")
        with without_scope_warnings():
            write_sealed(path, lambda file: self.module.export_library(file, **options))

    def session(self, device: Any = None) -> Session:
        """An instance to run on a TVM device (default: the first of the module's kind)."""
        import tvm

        if device is None:
            device = tvm.cuda(0) if self.meta.target == "cuda" else tvm.cpu(0)
        if self.meta.target == "cuda":
            from .runtime import check_device

            check_device(self.meta.plan.get("device", {}).get("arch"))
        with without_scope_warnings():
            return Session(self.module, self.meta, device)


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


def load(path: str | os.PathLike[str]) -> CompiledModule:
    """Load what export_library wrote. Needs TVM's runtime, not its compiler.

    Raises CorruptArtefact for anything but a whole module of this version.
    """
    check_seal(path)
    from .runtime import load_runtime

    load_runtime()
    import tvm

    try:
        with without_scope_warnings():
            module = tvm.runtime.load_module(str(Path(path).resolve()))
        description = _find_meta(module)
    except (RuntimeError, AttributeError, OSError) as err:
        raise CorruptArtefact(f"{path}, which does not load ({err})", "a compiled module") from None
    return CompiledModule(module, Meta.loads(description))


def _find_meta(module: Any) -> str:
    for part in _all_imports(module):
        if part.kind == "convoy":
            return str(part["convoy_meta"]())
    raise CorruptArtefact("a module without convoy's part", "a module written by export_library")


def _all_imports(module: Any) -> list[Any]:
    found = [module]
    for part in module.imports:
        found.extend(_all_imports(part))
    return found


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
    search: str = "greedy",
    progress: Progress | None = None,
) -> Placement:
    """Bring a Relax module to normal form and choose a kernel for every region of it.

    With a GPU candidates are measured unless records hold them (``measure=False`` forbids it);
    without one, shipped records and the user's own decide. ``records`` is the file for the
    user's own (default: in the data folder of the user). ``search`` is "greedy" (each convolution
    for itself, in program order) or "exact" (the cheapest cover of the whole graph, see
    docs/placer.md). Raises NoCandidate, InvalidOption and the errors of graph.normalize.
    """
    from . import graph

    objectives.check(objective)
    if precision not in PRECISIONS:
        raise InvalidOption(f"precision {precision!r}", f"one of {', '.join(PRECISIONS)}")
    if search not in SEARCHES:
        raise InvalidOption(f"search {search!r}", f"one of {', '.join(SEARCHES)}")
    used = _backends(backends)
    present = _present_device()
    device = device or present or Device()
    measure = (present == device) if measure is None else measure
    if measure and present is None:
        raise NoGpu("measure=True", "a GPU", "Leave measure out to place from records.")
    offload = [backend for backend in used if backend.name != "tvm"]
    costs, environment = _cost_model(offload, device, records, measure, progress)
    forms = [graph.normalize(mod, params, dtype=precision)]
    if precision in ("float16", "bfloat16"):  # other ways to present the first convolution
        forms.append(graph.normalize(mod, params, dtype=precision, space_to_depth=True))
        forms.append(graph.normalize(mod, params, dtype=precision, pad_channels=1))
    placements = [
        _place_form(form, offload, device, costs, objective, environment, search)
        for form in _distinct(forms)
    ]
    return min(placements, key=_order)  # of equal ones the first


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
    objective: str,
    environment: str,
    search: str,
) -> Placement:
    """Choose how much each region of a normal form covers and what runs it."""
    from . import graph
    from .placement import alternatives
    from .placement.place import gather, rank
    from .placement.place import place as choose

    regions = graph.find_regions(normal)
    groups = alternatives.plausible(
        regions,
        [lambda w, b=b: b.accepts(w, device) is None for b in backends],  # type: ignore[misc]
    )
    options = gather([r.workload for group in groups for r in group], backends, device, costs)

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
    placed = {r.root for r in runnable}
    bare = {region.root: region.workload for region in regions}  # of each root the shortest
    native = tuple(
        Native(root, workload, _declines(workload, backends, device))
        for root, workload in bare.items()
        if root not in placed
    )
    return Placement(normal, runnable, plan, native)


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


def build(
    mod: Any,
    target: Any = "cuda",
    params: Mapping[str, Any] | None = None,
    *,
    precision: str | None = None,
    cuda_graph: bool = True,
    **options: Any,
) -> CompiledModule:
    """Compile a Relax module (from convoy.relay or TVM's ONNX and torch importers).

    For ``cuda`` every convolution and matrix product goes to the backend and kernel that
    :func:`place` chose (its options are taken here as well); ``precision`` defaults to float16.
    For ``llvm`` the normalised network is compiled for the CPU, by default in float32.
    """
    from . import graph
    from .graph.lower import lower
    from .runtime import create_module

    kind = _kind(target)
    if kind == "llvm":
        precision = precision or "float32"
        normal = graph.normalize(mod, params, dtype=precision)
        inputs, outputs = _signature(normal)
        meta = Meta(inputs, outputs, kind, precision, versions=_versions())
        normal = graph.rewrite(normal, {}, create_module([], {}, meta.dumps()))
        return CompiledModule(lower(normal, target, cuda_graph=False), meta)
    precision = precision or "float16"
    placed = place(mod, params, precision=precision, **options)
    inputs, outputs = _signature(placed.module)
    meta = Meta(inputs, outputs, kind, precision, placed.plan.to_json(), _versions())
    entries, blobs, symbols = _build_entries(placed, options.get("backends", BACKENDS))
    external = create_module(entries, blobs, meta.dumps(), arch=placed.plan.device.arch)
    rewritten = graph.rewrite(placed.module, symbols, external)
    return CompiledModule(lower(rewritten, target, cuda_graph=cuda_graph), meta)


def _build_entries(
    placed: Placement, backends: Sequence[str | Backend]
) -> tuple[list[dict[str, Any]], dict[str, bytes], dict[str, str]]:
    """Runtime entries (one for each distinct workload and kernel), blobs, region -> symbol."""
    used = {backend.name: backend for backend in _backends(backends)}
    entries: list[dict[str, Any]] = []
    blobs: dict[str, bytes] = {}
    symbols: dict[str, str] = {}
    chosen: dict[str, list[tuple[Workload, Candidate]]] = {}
    for choice in placed.plan.choices:
        candidate = choice.chosen.candidate
        chosen.setdefault(candidate.backend, []).append((choice.workload, candidate))
    for name, jobs in chosen.items():  # kernels whose figures come from records may need compiling
        used[name].prepare(jobs, placed.plan.device)
    for i, choice in enumerate(placed.plan.choices):
        candidate = choice.chosen.candidate
        binary = used[candidate.backend].build(choice.workload, candidate, placed.plan.device)
        symbol = f"convoy_{i}_{choice.workload.op}"
        entries.append({**binary.entry, "symbol": symbol})
        blobs.update(binary.blobs)
        symbols[choice.region] = symbol
    return entries, blobs, symbols


def _kind(target: Any) -> str:
    import tvm

    kind = str(tvm.target.Target(target).kind.name)
    if kind not in ("cuda", "llvm"):
        raise InvalidOption(f"target {target!r}", "cuda or llvm")
    return kind


def _backends(names: Sequence[str | Backend]) -> list[Backend]:
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
    libraries = {backend.name: backend.libraries for backend in backends}

    def save(workload: Workload, candidate: Candidate, figure: Measurement) -> None:
        narrowed = here.narrowed(libraries[candidate.backend])
        store.append(Record(workload, candidate, figure, narrowed))

    return MeasuredCost(backends, device, RecordedCost(store, here), save, progress), here.id


def _signature(normal: Any) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
    """Inputs and flattened outputs of a module in normal form, its parameters bound."""
    main = normal["main"]

    def info(name: str, struct: Any) -> list[TensorInfo]:
        if hasattr(struct, "fields"):
            return [t for i, f in enumerate(struct.fields) for t in info(f"{name}_{i}", f)]
        return [TensorInfo(name, tuple(int(d) for d in struct.shape.values), str(struct.dtype))]

    inputs = [t for var in main.params for t in info(var.name, var.ty)]
    result = main.ret_ty
    if hasattr(result, "fields"):
        outputs = info("output", result)
    else:
        outputs = info("output_0", result)
    return tuple(inputs), tuple(outputs)


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("tvm-convoy", "apache-tvm", "nvidia-cutlass"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
