"""From a Relax module to a compiled one, step by step.

=========  ==============================  ====================================================
step       from                            to
=========  ==============================  ====================================================
normalize  a Relax module                  its normal forms
partition  a normal form                   a :class:`MatchGraph` of all subgraphs that match
price      match graphs, backends, costs   :class:`Offers` by workload
select     match graphs, offers            a :class:`Placement` with its :class:`Plan`
lower      a placement                     :class:`Lowered`: calls of kernels and of functions
schedule   lowered calls, the plan         a :class:`Timing`: streams, events, storage
link       lowered calls, the timing       a :class:`CompiledModule`
=========  ==============================  ====================================================

:func:`place` ends with select, :func:`compile_placement` begins with lower, :func:`build` does
both. Only select chooses kernels: where the scheduler measures that they do not suit its streams,
it says so, and the placement for one stream is compiled.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tvm

from .backends import registry
from .backends.base import Backend
from .backends.entries import build_entries
from .build_cache.kept import Kept
from .build_options import check_options, check_records
from .cost.model import CostModel
from .cost.price import price
from .cost.sources import cost_model, named
from .errors import InvalidOption, NoGpu, NotSchedulable
from .graph.rewriter import main_function
from .ir.artifact import Meta
from .ir.defaults import BACKENDS, BUDGET_S
from .ir.device import Device
from .ir.plan import Plan
from .ir.schedule import Schedule
from .ir.workload import Workload
from .lower import executable as lowering
from .lower.describe import describe
from .lower.lowered import Lowered
from .lower.target import cuda_target, kind_of
from .measure.trial import time_placement
from .normalize.forms import normal_forms
from .normalize.normal_form import normalize
from .partition import patterns
from .partition.alternatives import plausible_workloads
from .partition.match_graph import MatchGraph
from .partition.partition import partition
from .partition.rewrite import rewrite, with_constant_weights
from .placement.placement import Placement, restore
from .placement.select import explained, select
from .progress import Progress, stages
from .runtime import create_module, present_device
from .runtime.compiled import CompiledModule
from .streams.link import Part, link, link_together
from .streams.schedule import ONE_STREAM, Timing, check_streams, schedule
from .threads import one_at_a_time
from .tir import Rescheduled

SEARCH = "exact"


@one_at_a_time
def build(
    mod: tvm.IRModule,
    target: str | tvm.target.Target = "cuda",
    params: Mapping[str, Any] | None = None,
    *,
    precision: str | None = None,
    cuda_graph: bool = True,
    streams: int | str = "auto",
    cache: bool = True,
    **options: Any,
) -> CompiledModule:
    """Compile a Relax module (from convoy.relay or TVM's ONNX and torch importers).

    The same build again takes the module from the cache folder: the same network, weights,
    options, machine, versions and records.

    Args:
        target: For ``cuda`` every convolution and GEMM goes to the backend and kernel that
            :func:`place` chose. For ``llvm`` the normalised network is compiled for the CPU.
        precision: Default: float16 for ``cuda``, which is logged once, float32 for ``llvm``.
        cuda_graph: Sessions capture the whole function and replay it.
        streams: 1, a number of streams for independent branches, or "auto": several where they
            pay, which is measured where the GPU is there and predicted elsewhere
            (docs/design/streams.md).
        cache: Take the module of an earlier build, and keep this one's. Without, candidates that
            the earlier build's budget left out are measured.
        options: Those of :func:`place`.

    Raises:
        CacheUntrusted: Others may write into the cache folder.
        InvalidOption, TypeError: An option that there is not; also the errors of :func:`place` and
            of normalize.
    """
    kind = kind_of(target)
    streams = check_streams(streams)
    inspect.signature(place).bind_partial(mod, **options)  # also where no option counts
    precision = precision or ("float32" if kind == "llvm" else _default_precision(mod))
    check_options(precision=precision, **options)
    find_backends(options.get("backends", BACKENDS))
    report = stages(options.pop("progress", None))
    main_function(mod)  # an error of ours for what is no network
    whole = {"precision": precision, "cuda_graph": cuda_graph, "streams": streams}
    runs_here = kind == "llvm" or present_device() is not None  # else it could not be loaded
    kept = Kept.of(mod, target, params, _defaults() | options | whole, cache and runs_here)
    if (found := kept.module()) is not None:
        return _with_warnings(found)
    if kind == "llvm":
        return kept.keep(_build_for_cpu([mod], params, target, precision, ["main"]), ())
    together = streams if cuda_graph else 1  # kernels that share the device are for replayed graphs
    with report.stage("build"):
        placement = place(
            mod, params, precision=precision, streams=together, progress=report, **options
        )
        compiled = compile_placement(
            placement, target, precision, backends=options.get("backends", BACKENDS),
            cuda_graph=cuda_graph, streams=streams, progress=report,
        )  # fmt: skip
    by_kernel_time = placement.plan.objective == "graph"  # host times are those of all records
    return kept.keep(compiled, placement.workloads if by_kernel_time else None)


def _defaults() -> dict[str, Any]:
    """The options of :func:`place` on which a build depends, with their defaults."""
    left_out = ("mod", "params", "progress", "explain")
    parameters = inspect.signature(place).parameters.values()
    return {p.name: p.default for p in parameters if p.name not in left_out}


def _default_precision(mod: tvm.IRModule) -> str:
    """float16, and a line in the log where this changes what the network was written in."""
    if any("float32" in str(param.ty) for param in main_function(mod)[1].params):
        _say_once(
            'a float32 network is compiled in float16; precision="float32" or "tf32" keeps it'
        )
    return "float16"


@functools.cache
def _say_once(text: str) -> None:
    logging.getLogger("convoy").warning(text)


@one_at_a_time
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
    streams: int | str = "auto",
    kernels: str = "shipped",
    budget: float | None = BUDGET_S,
) -> Placement:
    """Bring a Relax module to normal form and choose a kernel for every subgraph of it.

    With a GPU the best guesses are measured for ``budget`` seconds, unless records hold a backend's
    candidates for a workload (``measure=False`` forbids it); without a GPU, shipped records and
    the user's own decide.

    Args:
        most_measured: Candidates measured of each backend for a workload, its best guesses.
        records: The file of the user's own records (default: in the user's data folder).
        costs: "recorded" from records alone, "predicted" from records of other workloads, or a
            CostModel of your own; "measured" is the same as ``measure=True``.
        search: "exact" (the cheapest cover of the whole graph; each convolution for itself where
            some have no measurements), "greedy" (each convolution for itself, in program order)
            or "evolve" (the exact cover refined by the simulated schedule and, where candidates
            are measured, by the time of whole compiled networks, for which there are about
            ``seconds``); see docs/design/placer.md.
        plan: An earlier decision, taken over as it is: nothing is searched or measured.
        explain: The placement carries the reasons of every decision and what other objectives
            would do.
        progress: Called with what is being done, how many steps are done, and of how many. By
            default a terminal shows a bar, and the log ``convoy`` has a line for each stage.
        kernels: "shipped" takes cuDNN and kernels that are compiled already, and runs nvcc only
            for an operation that nothing else takes; "all" compiles every candidate.
        budget: Seconds of measuring; None measures every candidate.
        streams: With "auto" kernels are chosen together with the streams that they will run on,
            as :func:`build` does by default; with a number each kernel for itself.

    Raises:
        NoCandidate: No backend takes a workload, and neither does TVM.
        InvalidOption: Also for a plan of another network; and the errors of normalize.
    """
    streams = check_streams(streams)
    check_options(
        precision=precision, objective=objective, search=search, plan=plan, kernels=kernels,
        budget=budget, seconds=seconds, costs=costs, most_measured=most_measured,
    )  # fmt: skip
    report = stages(progress)
    used = find_backends(backends)
    offload = [backend for backend in used if backend.name != "tvm"]
    device = plan.device if plan is not None else device or present_device() or Device()
    measures = plan is None and _may_measure(costs, device, measure)
    if measures:
        check_records(records)
    forms = normal_forms(mod, params, precision)
    found = (partition(form, offload, device) for form in forms)
    if plan is not None:
        return restore(found, plan)
    host_times = explain or objective != "graph"  # which is a matter of the GPU alone
    model, environment = _cost_model(
        costs, offload, device, records, measures, most_measured, report, budget, host_times
    )
    compiled = functools.partial(compile_placement, precision=precision, backends=used)
    timed = functools.partial(time_placement, compile_placement=compiled) if measures else None

    with report.stage("normalize and partition"):
        graphs = distinct(found)
    with report.stage("price kernels"):
        joint = explain or search != "greedy"
        offers = price(graphs, offload, device, model, joint, compiled=kernels == "shipped")
    with report.stage("select kernels"):
        placement = select(
            graphs, offers, objective, search, source=model.source, environment=environment,
            timed=timed, seconds=seconds, streams=streams,
        )  # fmt: skip
    placement = dataclasses.replace(placement, workloads=tuple(offers))
    if explain:
        return explained(placement, offers, "greedy" if search == "greedy" else "exact")
    return placement


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


def _cost_model(
    costs: str | CostModel | None,
    backends: Sequence[Backend],
    device: Device,
    records: str | os.PathLike[str] | None,
    measure: bool,
    most_measured: int | None,
    progress: Progress | None,
    budget: float | None,
    host_times: bool,
) -> tuple[CostModel, str]:
    """The cost model that options ask for, and its environment."""
    if costs is None or costs == "measured":
        return cost_model(
            backends, device, records, measure, most_measured, progress, budget=budget,
            host_times=host_times,
        )  # fmt: skip
    if isinstance(costs, str):
        return named(costs, device, records, host_times), ""
    return costs, ""


def _may_measure(costs: str | CostModel | None, device: Device, measure: bool | None) -> bool:
    present = present_device()
    measure = True if costs == "measured" else measure
    measure = (present == device and costs is None) if measure is None else measure
    if measure and present is None:
        raise NoGpu("measure=True", "a GPU", "Leave measure out to place from records.")
    return measure


@one_at_a_time
def compile_placement(
    placement: Placement,
    target: str | tvm.target.Target = "cuda",
    precision: str = "float16",
    *,
    backends: Sequence[str | Backend] = BACKENDS,
    cuda_graph: bool = True,
    streams: int | str = "auto",
    progress: Progress | None = None,
) -> CompiledModule:
    """Compile a network as it was placed; options as :func:`build`."""
    plan, on_gpu = placement.plan, present_device() == placement.plan.device
    report = stages(progress)
    meta = describe(placement.module, target, precision, plan)
    with report.stage("lower and compile"):
        program = _lower(placement, _with_arch(target, plan.device), find_backends(backends))
    try:
        with report.stage("schedule"):
            timing = schedule(program, plan, streams, on_gpu=on_gpu, cuda_graph=cuda_graph)
    except NotSchedulable as err:
        warnings.warn(f"compiled for one stream: {err}", stacklevel=2)
        return _link_unscheduled(placement, program, meta, cuda_graph)
    if timing.hint == ONE_STREAM and placement.on_one_stream is not None:
        return compile_placement(
            placement.on_one_stream, target, precision,
            backends=backends, cuda_graph=cuda_graph, streams=streams, progress=report,
        )  # fmt: skip
    meta = dataclasses.replace(meta, schedule=timing.schedule.to_json(), cuda_graph=cuda_graph)
    meta = _with_rescheduled(meta, program.rescheduled)
    with report.stage("link"):
        described = _description(meta, plan.device)
        executable = link(program, timing.program, timing.schedule, [described])
    return CompiledModule(executable, meta)


@one_at_a_time
def build_together(
    mods: Sequence[tvm.IRModule],
    target: str | tvm.target.Target = "cuda",
    *,
    precision: str | None = None,
    cuda_graph: bool = True,
    streams: int | str = "auto",
    plans: Sequence[Plan] | None = None,
    **options: Any,
) -> CompiledModule:
    """Compile one network at several batch sizes into one module, which holds a weight once where
    the sizes want it in one layout.

    Args:
        mods: The network, its parameters bound, at ascending batch sizes.
        plans: Earlier decisions, one for each module.
        precision, cuda_graph, streams, options: As for :func:`build`.

    Raises:
        NotSchedulable: On a GPU, a network with operations whose effects are unknown; also the
            errors of :func:`build`.
    """
    kind, streams = kind_of(target), check_streams(streams)
    inspect.signature(place).bind_partial(mods[0], **options)
    names = ["main", *(f"main_{i}" for i in range(1, len(mods)))]
    if kind == "llvm":
        return _build_for_cpu(mods, None, target, precision or "float32", names)
    precision = precision or _default_precision(mods[0])
    together = streams if cuda_graph else 1
    report = stages(options.pop("progress", None))
    backends = find_backends(options.get("backends", BACKENDS))
    parts, metas = [], []

    def timed(placement: Placement, suffix: str) -> tuple[Placement, Lowered, Timing]:
        plan = dataclasses.replace(placement.plan, suffix=suffix)
        placement = dataclasses.replace(placement, plan=plan)
        with report.stage("lower and compile"):
            program = _lower(placement, _with_arch(target, plan.device), backends)
        on_gpu = present_device() == plan.device
        with report.stage("schedule"):
            timing = schedule(program, plan, streams, on_gpu=on_gpu, cuda_graph=cuda_graph)
        return placement, program, timing

    for i, (mod, name) in enumerate(zip(mods, names, strict=True)):
        known = {"plan": plans[i]} if plans else {}
        placement = place(
            mod, precision=precision, streams=together, progress=report, **{**options, **known}
        )
        suffix = f"_{i}" if i else ""
        placed, program, timing = timed(placement, suffix)
        if timing.hint == ONE_STREAM and placement.on_one_stream is not None:
            placed, program, timing = timed(placement.on_one_stream, suffix)
        parts.append(Part(program, timing.program, timing.schedule, name))
        meta = describe(placed.module, target, precision, placed.plan)
        meta = dataclasses.replace(
            meta, schedule=timing.schedule.to_json(), cuda_graph=cuda_graph, function=name
        )
        metas.append(_with_rescheduled(meta, program.rescheduled))
    meta = dataclasses.replace(metas[0], others=tuple(metas[1:]))
    with report.stage("link"):
        device = Plan.from_json(meta.plan).device
        return CompiledModule(link_together(parts, [_description(meta, device)]), meta)


@one_at_a_time
def predict_schedule(placement: Placement, streams: int | str = "auto") -> Schedule:
    """The schedule of a placed network as the simulator predicts it; nothing is compiled.

    Raises InvalidOption, and NotSchedulable for a network with operations whose effects are
    unknown.
    """
    streams = check_streams(streams)
    plan = placement.plan
    program = Lowered.of(_rewritten(placement), cuda_target(plan.device))
    return schedule(program, plan, streams, compiled=False).schedule


def _build_for_cpu(
    mods: Sequence[tvm.IRModule],
    params: Mapping[str, Any] | None,
    target: str | tvm.target.Target,
    precision: str,
    names: Sequence[str],
) -> CompiledModule:
    normal = [normalize(mod, params, dtype=precision) for mod in mods]
    metas = [
        dataclasses.replace(describe(mod, target, precision), function=name)
        for mod, name in zip(normal, names, strict=True)
    ]
    meta = dataclasses.replace(metas[0], others=tuple(metas[1:]))
    normal[0] = rewrite(normal[0], {}, create_module([], {}, meta.dumps()))
    named = dict(zip(names, normal, strict=True))
    return CompiledModule(lowering.lower_together(named, target), meta)


def _rewritten(placement: Placement) -> tvm.IRModule:
    """The module with calls of external functions in place of the plan's subgraphs."""
    chosen = {c.subgraph: symbol for symbol, c in placement.plan.functions().items()}
    return rewrite(placement.module, chosen, subgraphs=placement.subgraphs)


def _lower(
    placement: Placement, target: str | tvm.target.Target, backends: Sequence[Backend]
) -> Lowered:
    """Lower to calls of kernels and of external functions, which are built here, once."""
    plan, rewritten = placement.plan, _rewritten(placement)
    constant = with_constant_weights(rewritten)
    built = build_entries(plan, {backend.name: backend for backend in backends}, constant)
    functions = create_module(built.entries, built.blobs, arch=plan.device.arch)
    return Lowered.of(rewritten, target, [functions], plan.suffix)


def _link_unscheduled(
    placement: Placement, program: Lowered, meta: Meta, cuda_graph: bool
) -> CompiledModule:
    """Compile by TVM's own means a network that the scheduler does not take."""
    device = placement.plan.device

    def external(kernels: list[Rescheduled]) -> list[tvm.runtime.Module]:
        described = dataclasses.replace(meta, rescheduled=tuple(map(str, kernels)))
        return [*program.external, _description(described, device)]

    executable, rescheduled = lowering.lower_reporting(
        _rewritten(placement), program.target, cuda_graph, external
    )
    return CompiledModule(executable, _with_rescheduled(meta, rescheduled))


def _description(meta: Meta, device: Device) -> tvm.runtime.Module:
    """A module without functions that carries the description into the exported file."""
    return create_module([], {}, meta.dumps(), arch=device.arch)


def _with_rescheduled(meta: Meta, kernels: Sequence[Rescheduled]) -> Meta:
    """``meta``, with a warning for each kernel that is not scheduled as it should be."""
    for kernel in kernels:
        warnings.warn(f"compiled with a simpler schedule: {kernel}", stacklevel=4)
    return dataclasses.replace(meta, rescheduled=tuple(map(str, kernels)))


def _with_warnings(module: CompiledModule) -> CompiledModule:
    """The module of an earlier build, with the warnings of that build."""
    for kernel in module.meta.rescheduled:
        warnings.warn(f"compiled with a simpler schedule: {kernel}", stacklevel=5)
    return module


def _with_arch(target: str | tvm.target.Target, device: Device) -> str | tvm.target.Target:
    """The target, with the device's architecture where it is only a name and there is no GPU that
    TVM could ask: its default is too old for bfloat16."""
    return cuda_target(device) if target == "cuda" and present_device() is None else target


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
    device = device or present_device() or Device()
    offload = [backend for backend in find_backends(backends) if backend.name != "tvm"]
    names = [backend.name for backend in offload]
    found: dict[Workload, None] = {}
    forms = normal_forms(mod, params, precision)
    for graph in distinct(partition(form, offload, device) for form in forms):
        found.update(dict.fromkeys(plausible_workloads(graph, names, search != "greedy")))
    return list(found)


def find_backends(names: Sequence[str | Backend]) -> list[Backend]:
    """Backends by name; backends themselves stay. Their patterns are registered.

    Raises InvalidOption for an unknown name.
    """
    if isinstance(names, str):
        raise InvalidOption(f"backends={names!r}", f"several, such as ({names!r}, 'tvm')")
    found = [name if isinstance(name, Backend) else registry.get(name) for name in names]
    for backend in found:
        for pattern in backend.patterns():
            patterns.register(pattern)
    return found
