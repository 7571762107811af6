"""From a Relax module to a compiled one: placement, code, one artefact."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .backends.base import Backend
from .errors import InvalidOption, NotSchedulable
from .ir.artifact import Meta, TensorInfo
from .ir.candidate import Candidate
from .ir.device import Device
from .placement.api import BACKENDS, find_backends, place
from .placement.placement import Placement
from .runtime.compiled import CompiledModule

if TYPE_CHECKING:
    from .ir.plan import Plan
    from .ir.workload import Workload
    from .tir import Rescheduled


def build(
    mod: Any,
    target: Any = "cuda",
    params: Mapping[str, Any] | None = None,
    *,
    precision: str | None = None,
    cuda_graph: bool = True,
    streams: int | str = "auto",
    **options: Any,
) -> CompiledModule:
    """Compile a Relax module (from convoy.relay or TVM's ONNX and torch importers).

    For ``cuda`` every convolution and matrix product goes to the backend and kernel that
    :func:`place` chose (its options are taken here as well); ``precision`` defaults to float16.
    ``cuda_graph`` lets sessions capture the whole function and replay it. ``streams`` is 1, a
    number of streams for independent branches, or "auto": several where they pay, which is
    measured where the GPU is there and predicted elsewhere (docs/streams.md).
    For ``llvm`` the normalised network is compiled for the CPU, by default in float32.

    Raises InvalidOption, TypeError for an option that there is not, and the errors of :func:`place`
    and graph.normalize.
    """
    from .lower.executable import lower
    from .normalize.normal_form import normalize
    from .partition.rewrite import rewrite
    from .runtime import create_module
    from .streams.decide import check_streams

    kind = _kind(target)
    streams = check_streams(streams)
    inspect.signature(place).bind_partial(mod, **options)  # also where no option counts
    if kind == "llvm":
        precision = precision or "float32"
        normal = normalize(mod, params, dtype=precision)
        inputs, outputs = _signature(normal)
        meta = Meta(inputs, outputs, kind, precision, versions=_versions())
        normal = rewrite(normal, {}, create_module([], {}, meta.dumps()))
        return CompiledModule(lower(normal, target, cuda_graph=False), meta)
    precision = precision or "float16"
    placed = place(mod, params, precision=precision, **options)
    used = options.get("backends", BACKENDS)
    return compile_placement(
        placed, target, precision, backends=used, cuda_graph=cuda_graph, streams=streams
    )


def compile_placement(
    placed: Placement,
    target: Any = "cuda",
    precision: str = "float16",
    *,
    backends: Sequence[str | Backend] = BACKENDS,
    cuda_graph: bool = True,
    streams: int | str = "auto",
) -> CompiledModule:
    """Compile a network as it was placed; options as :func:`build`."""
    from .lower.executable import lower_reporting
    from .partition.rewrite import rewrite
    from .runtime import create_module

    kind = _kind(target)
    target = _of_device(target, placed.plan.device)
    inputs, outputs = _signature(placed.module)
    used = {backend.name: backend for backend in find_backends(backends)}
    entries, blobs, symbols = _build_entries(placed.plan, used)
    meta = Meta(inputs, outputs, kind, precision, placed.plan.to_json(), _versions())
    external = create_module(entries, blobs, meta.dumps(), arch=placed.plan.device.arch)
    rewritten = rewrite(placed.module, symbols, external, placed.subgraphs)
    try:
        return _scheduled(rewritten, target, meta, placed.plan, used, cuda_graph, streams)
    except NotSchedulable as err:
        warnings.warn(f"compiled for one stream: {err}", stacklevel=2)

        def described(kernels: list[Rescheduled]) -> Any:
            text = _with_rescheduled(meta, kernels).dumps()
            return create_module(entries, blobs, text, arch=placed.plan.device.arch)

        executable, rescheduled = lower_reporting(rewritten, target, cuda_graph, described)
        return CompiledModule(executable, _said(_with_rescheduled(meta, rescheduled)))


def _scheduled(
    mod: Any,
    target: Any,
    meta: Meta,
    plan: Plan,
    backends: Mapping[str, Backend],
    cuda_graph: bool,
    streams: int | str,
) -> CompiledModule:
    """Compile a rewritten module by a schedule, which becomes part of its description."""
    from .placement.api import _present_device
    from .runtime import create_module
    from .streams.decide import decide
    from .streams.durations import figures_of
    from .streams.link import Lowered
    from .streams.machine import Machine
    from .streams.placed import PlacedKernels

    lowered = Lowered.of(mod, target)
    machine, on_gpu = Machine.of(plan.device), _present_device() == plan.device
    symbols = {choice.subgraph: plan.symbol(i) for i, choice in enumerate(plan.choices)}
    kernels = PlacedKernels(plan, symbols, backends, machine, on_gpu)

    def external(exchanged: Mapping[str, Any], meta: Meta = meta) -> Any:
        entries, blobs, _ = _build_entries(kernels.with_variants(exchanged), backends)
        return create_module(entries, blobs, meta.dumps(), arch=plan.device.arch)

    lowered.program(machine)  # a module without a schedule is found out before anything is compiled
    # What does not compile is scheduled again: from here on the program says what will be launched.
    _ = lowered.kernels
    decision = decide(
        lowered,
        machine,
        figures_of(plan, symbols),
        streams,
        on_gpu=on_gpu,
        cuda_graph=cuda_graph,
        kernels=kernels,
        external=external,
    )
    meta = dataclasses.replace(
        _said(_with_rescheduled(meta, lowered.rescheduled)),
        plan=kernels.with_variants(decision.exchanged).to_json(),
        schedule=decision.schedule.to_json(),
        cuda_graph=cuda_graph,
    )
    modules = [external(decision.exchanged, meta)]
    return CompiledModule(lowered.link(decision.program, decision.schedule, modules), meta)


def _with_rescheduled(meta: Meta, kernels: Sequence[Rescheduled]) -> Meta:
    return dataclasses.replace(meta, rescheduled=tuple(map(str, kernels)))


def _said(meta: Meta) -> Meta:
    """``meta``, with a warning for each kernel that is not scheduled as it should be."""
    for kernel in meta.rescheduled:
        warnings.warn(f"compiled with a simpler schedule: {kernel}", stacklevel=4)
    return meta


def _build_entries(
    plan: Plan, backends: Mapping[str, Backend]
) -> tuple[list[dict[str, Any]], dict[str, bytes], dict[str, str]]:
    """Runtime entries (one for each distinct workload and kernel), blobs, region -> symbol."""
    entries: list[dict[str, Any]] = []
    blobs: dict[str, bytes] = {}
    symbols: dict[str, str] = {}
    chosen: dict[str, list[tuple[Workload, Candidate]]] = {}
    for choice in plan.choices:
        candidate = choice.chosen.candidate
        chosen.setdefault(candidate.backend, []).append((choice.workload, candidate))
    for name, jobs in chosen.items():  # kernels whose figures come from records may need compiling
        backends[name].prepare(jobs, plan.device)
    for i, choice in enumerate(plan.choices):
        candidate = choice.chosen.candidate
        binary = backends[candidate.backend].build(choice.workload, candidate, plan.device)
        symbol = plan.symbol(i)
        entries.append({**binary.entry, "symbol": symbol})
        blobs.update(binary.blobs)
        symbols[choice.subgraph] = symbol
    return entries, blobs, symbols


def _kind(target: Any) -> str:
    import tvm

    if target in ("cuda", "llvm"):  # TVM warns of CUDA without a GPU, whose architecture it asks
        return str(target)
    try:
        kind = str(tvm.target.Target(target).kind.name)
    except (ValueError, TypeError, KeyError, RuntimeError) as err:
        raise InvalidOption(f"target {target!r} ({err})", "cuda or llvm") from None
    if kind not in ("cuda", "llvm"):
        raise InvalidOption(f"target {target!r}", "cuda or llvm")
    return kind


def cuda_target(device: Device) -> Any:
    """TVM's target for a device that need not be present."""
    import tvm

    return tvm.target.Target({"kind": "cuda", "arch": f"sm_{device.arch}"})


def _of_device(target: Any, device: Device) -> Any:
    """The target, with the device's architecture where it is only a name and there is no GPU that
    TVM could ask: its default is too old for bfloat16."""
    from .placement.api import _present_device

    return cuda_target(device) if target == "cuda" and _present_device() is None else target


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
