"""The complete pipeline: place a network, compile it, or both in one call."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import tvm

from ..backends.base import Backend
from ..build_cache.cached_build import CachedBuild
from ..build_cache.source import Source
from ..build_options import check_options, check_records
from ..cost.model import CostModel
from ..cost.price import price
from ..cost.sources import cost_model
from ..graph.bind import Params
from ..graph.function import main_function
from ..ir.defaults import BACKENDS, BUDGET_S
from ..ir.device import Device
from ..ir.plan import Plan
from ..ir.workload import Workload
from ..lower.target import kind_of
from ..measure.trial import time_placement
from ..measure.warm_up import warm_up
from ..normalize.forms import normal_forms
from ..partition.partition import distinct, partition
from ..placement.in_place import prefer_in_place
from ..placement.placement import Placement, restore
from ..placement.select import explained, select
from ..progress import Progress, stages
from ..runtime import present_device
from ..runtime.compiled import CompiledModule
from ..streams.schedule import check_streams
from ..threads import one_at_a_time
from .cpu import build_for_cpu
from .executable import compile_placement, compile_placements
from .options import SEARCH, default_precision, find_backends, may_measure
from .rescheduled import repeat_warnings


@one_at_a_time
def build(
    mod: tvm.IRModule,
    target: str | tvm.target.Target = "cuda",
    params: Params | None = None,
    *,
    precision: str | None = None,
    cuda_graph: bool = True,
    streams: int | str = "auto",
    cache: bool = True,
    **options: Any,
) -> CompiledModule:
    """Compile a Relax module (from convoy.relay or TVM's ONNX and torch importers).

    Repeating a build (same network, weights, options, machine, versions and records) loads its
    module from the cache folder.

    Args:
        mod: The module to compile.
        target: ``cuda`` compiles every convolution and GEMM with the backend and kernel that
            :func:`place` selects; ``llvm`` compiles the normalized network for the CPU.
        params: Values of parameters by name, which become constants.
        precision: Operand type of convolutions and GEMMs. Default: float16 for ``cuda``, which is
            logged once, and float32 for ``llvm``.
        cuda_graph: Whether sessions capture the function as a CUDA graph and replay it.
        streams: Number of CUDA streams for independent branches. "auto" uses several only if they
            are faster, as measured on the GPU if it is present and as predicted otherwise
            (docs/design/streams.md).
        cache: Whether to reuse the module of an earlier build and to save this one. ``False``
            builds anew and measures candidates that an earlier build's budget left unmeasured.
        options: Options of :func:`place`.

    Returns:
        The compiled module.

    Raises:
        CacheUntrusted: Other users can write to the cache folder.
        InvalidOption, TypeError: An invalid option; also the errors of :func:`place` and of
            normalization.
    """
    kind = kind_of(target)
    check_streams(streams)
    if precision is None:
        precision = "float32" if kind == "llvm" else default_precision(mod)
    main_function(mod)  # an error of ours for what is no network
    return build_sources(
        [Source.of(mod)], target, params, precision=precision, cuda_graph=cuda_graph,
        streams=streams, cache=cache, **options,
    )  # fmt: skip


@one_at_a_time
def build_sources(
    network: Sequence[Source],
    target: str | tvm.target.Target,
    params: Params | None = None,
    *,
    precision: str,
    cuda_graph: bool = True,
    streams: int | str = "auto",
    cache: bool = True,
    plans: Sequence[Plan] = (),
    **options: Any,
) -> CompiledModule:
    """Compile a network at one batch size or several into one module, which holds a weight once
    where the sizes want it in one layout. It is imported only if the cache has no such module.

    Args:
        network: Its module at ascending batch sizes.
        plans: Earlier plans to use as they are, one for each size.
        target, params, precision, cuda_graph, streams, cache, options: As for :func:`build`, which
            says what is raised.
    """
    kind, streams = kind_of(target), check_streams(streams)
    _check_options(options, precision)
    report = stages(options.pop("progress", None))
    whole = {"precision": precision, "cuda_graph": cuda_graph, "streams": streams, "plans": plans}
    entry = _cache_entry(network, target, params, options | whole, cache)
    if (found := entry.module()) is not None:
        return repeat_warnings(found)
    with report.stage("build"):
        mods = [source.module() for source in network]
        if kind == "llvm":
            with report.stage("lower and compile"):
                return entry.keep(build_for_cpu(mods, params, target, precision), ())
        together = streams if cuda_graph else 1  # kernels share the device in replayed graphs
        known = [{"plan": plan} for plan in plans] or [{}] * len(mods)
        placements = [
            place(
                mod, params, precision=precision, streams=together, progress=report,
                **{**options, **plan},
            )
            for mod, plan in zip(mods, known, strict=True)
        ]  # fmt: skip
        compiled = compile_placements(
            placements, target, precision, backends=options.get("backends", BACKENDS),
            cuda_graph=cuda_graph, streams=streams, progress=report,
        )  # fmt: skip
        with report.stage("keep for the next build"):
            return entry.keep(compiled, _deciding_workloads(placements))


def _check_options(options: Mapping[str, Any], precision: str) -> None:
    """Raise for options that :func:`place` does not take, also where none of them counts."""
    inspect.signature(place).bind_partial(None, **options)
    check_options(precision=precision, **options)
    find_backends(options.get("backends", BACKENDS))


def _cache_entry(
    network: Sequence[Source],
    target: str | tvm.target.Target,
    params: Params | None,
    options: dict[str, Any],
    cache: bool,
) -> CachedBuild:
    """Return the cache entry of a build with these options, all others at their defaults."""
    left_out = ("mod", "params", "progress", "explain")
    parameters = inspect.signature(place).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.name not in left_out}
    runs_here = kind_of(target) == "llvm" or present_device() is not None  # else it does not load
    return CachedBuild.of(network, target, params, defaults | options, cache and runs_here)


def _deciding_workloads(placements: Sequence[Placement]) -> list[Workload] | None:
    """Return the workloads whose records decide what is built; None for those of all records, by
    which host times are rescaled."""
    if any(placement.plan.objective != "graph" for placement in placements):
        return None
    return [workload for placement in placements for workload in placement.workloads]


@one_at_a_time
def place(
    mod: tvm.IRModule,
    params: Params | None = None,
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
    """Bring a Relax module to normal form and select a kernel for each of its subgraphs.

    On a GPU, candidates without a record are measured, the most promising first, for up to
    ``budget`` seconds (``measure=False`` disables this). Without a GPU, costs come from shipped
    records and the user's own.

    Args:
        mod: The module to place.
        params: Values of parameters by name, which become constants.
        precision: "float32" (strict), "tf32_conv" (convolutions may round operands to tf32,
            GEMMs not), "tf32", "float16" or "bfloat16".
        objective: "graph", "stream" or "sync": how the module will be run, which selects the cost
            to minimize.
        backends: Backends to use, by name or as objects.
        records: File of the user's own records (default: in the user's data folder).
        device: GPU to place for (default: the one that is present, otherwise an H200).
        measure: Whether to measure candidates (default: only if ``device`` is present).
        most_measured: Maximum number of candidates to measure for each backend and workload.
        costs: "recorded" (records only), "predicted" (estimates from records of other workloads),
            "measured" (same as ``measure=True``) or a CostModel.
        search: "exact" (the cheapest cover of the graph; greedy if some subgraphs have no
            measurements), "greedy" (each convolution on its own, in program order) or "evolve"
            (the exact cover refined by the simulated schedule and, if candidates are measured, by
            the time of compiled networks); see docs/design/placement.md.
        seconds: Time budget of "evolve" for measuring compiled networks.
        plan: An earlier plan to use as it is, without search and measurement.
        explain: Whether to record the reasons of every decision, and what other objectives would
            select.
        progress: Called with a label, the number of finished steps and the total. By default a
            progress bar is shown on terminals, and the logger ``convoy`` gets a line when a stage
            begins and when it ends.
        streams: "auto" selects kernels together with the streams that they will run on, as
            :func:`build` does by default; a number selects each kernel on its own.
        kernels: "shipped" uses cuDNN and kernels that are already compiled, and runs nvcc only for
            operations that nothing else supports; "all" compiles every candidate.
        budget: Time budget for measuring candidates, in seconds, which goes to those with the
            largest expected gain. One candidate of each workload without a record is measured
            whatever the budget; None measures all.

    Returns:
        The placement: the selected subgraphs and their plan.

    Raises:
        NoCandidate: Neither a backend nor TVM supports a workload.
        InvalidOption: An invalid option, or a plan of another network; also the errors of
            normalization.
    """
    streams = check_streams(streams)
    check_options(
        precision=precision, objective=objective, search=search, plan=plan, kernels=kernels,
        budget=budget, seconds=seconds, costs=costs, most_measured=most_measured, device=device,
    )  # fmt: skip
    report = stages(progress)
    used = find_backends(backends)
    offload = [backend for backend in used if backend.name != "tvm"]
    device = plan.device if plan is not None else device or present_device() or Device()
    measures = plan is None and may_measure(costs, device, measure, present_device())
    if measures:
        check_records(records)
    forms = normal_forms(mod, params, precision, device.arch)
    found = (partition(form, offload, device) for form in forms)  # form by form, as they are asked
    if plan is not None:
        return restore(found, plan)
    model, environment = cost_model(
        costs, offload, device, records, measure=measures, most_measured=most_measured,
        budget=budget, host_times=explain or objective != "graph",  # a replayed graph has none
    )  # fmt: skip
    compiled = functools.partial(compile_placement, precision=precision, backends=used)
    timed = functools.partial(time_placement, compile_placement=compiled) if measures else None

    loading = warm_up(offload, device) if measures else nullcontext()
    with report.stage("normalize and partition"), loading:
        graphs = distinct(found)
    with report.stage("price kernels"):
        joint = explain or search != "greedy"
        offers = price(graphs, offload, device, model, joint, compiled=kernels == "shipped")
    with report.stage("select kernels"):
        placement = select(
            graphs, offers, objective, search, source=model.source, environment=environment,
            timed=timed, seconds=seconds, streams=streams,
        )  # fmt: skip
        placement = prefer_in_place(placement, {backend.name: backend for backend in offload})
    placement = dataclasses.replace(placement, workloads=tuple(offers))
    if explain:
        return explained(placement, offers, "greedy" if search == "greedy" else "exact")
    return placement
