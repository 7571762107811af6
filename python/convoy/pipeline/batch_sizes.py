"""Compile a network for several batch sizes into one module with one set of weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tvm

from ..build_cache.source import Source
from ..ir.defaults import BACKENDS
from ..ir.plan import Plan
from ..lower.describe import describe
from ..lower.lowered import Lowered
from ..lower.target import kind_of, with_arch
from ..placement.placement import Placement
from ..progress import stages
from ..runtime import present_device
from ..runtime.compiled import CompiledModule
from ..streams.link import Part, link_together
from ..streams.schedule import ONE_STREAM, Timing, check_streams, schedule
from ..threads import one_at_a_time
from .cpu import build_for_cpu
from .emit import description, lower, repeat_warnings, with_rescheduled
from .network import check_build, decisive, kept_build, place
from .options import find_backends


@one_at_a_time
def build_together(
    network: Sequence[Source],
    target: str | tvm.target.Target,
    *,
    precision: str,
    cuda_graph: bool = True,
    streams: int | str = "auto",
    cache: bool = True,
    plans: Sequence[Plan] = (),
    **options: Any,
) -> CompiledModule:
    """Compile one network at several batch sizes into one module, which holds a weight once where
    the sizes want it in one layout.

    Args:
        network: Its modules, their parameters bound, at ascending batch sizes.
        plans: Earlier decisions, one for each module.
        precision, cuda_graph, streams, cache, options: As for :func:`build`.

    Raises:
        NotSchedulable: On a GPU, a network with operations whose effects are unknown; also the
            errors of :func:`build`.
    """
    kind, streams = kind_of(target), check_streams(streams)
    check_build(options, precision)
    report = stages(options.pop("progress", None))
    whole = {"precision": precision, "cuda_graph": cuda_graph, "streams": streams, "plans": plans}
    kept = kept_build(network, target, None, options | whole, cache)
    if (found := kept.module()) is not None:
        return repeat_warnings(found)
    names = ["main", *(f"main_{i}" for i in range(1, len(network)))]
    mods = [source.module() for source in network]
    if kind == "llvm":
        with report.stage("lower and compile"):
            return kept.keep(build_for_cpu(mods, None, target, precision, names), ())
    together = streams if cuda_graph else 1
    backends = find_backends(options.get("backends", BACKENDS))
    placements, parts, metas = [], [], []

    def timed(placement: Placement, suffix: str) -> tuple[Placement, Lowered, Timing]:
        plan = dataclasses.replace(placement.plan, suffix=suffix)
        placement = dataclasses.replace(placement, plan=plan)
        with report.stage("lower and compile"):
            program = lower(placement, with_arch(target, plan.device), backends)
        on_gpu = present_device() == plan.device
        with report.stage("schedule"):
            timing = schedule(program, plan, streams, on_gpu=on_gpu, cuda_graph=cuda_graph)
        return placement, program, timing

    for i, (mod, name) in enumerate(zip(mods, names, strict=True)):
        known = {"plan": plans[i]} if plans else {}
        placement = place(
            mod, precision=precision, streams=together, progress=report, **{**options, **known}
        )
        placements.append(placement)
        suffix = f"_{i}" if i else ""
        placed, program, timing = timed(placement, suffix)
        if timing.hint == ONE_STREAM and placement.on_one_stream is not None:
            placed, program, timing = timed(placement.on_one_stream, suffix)
        parts.append(Part(program, timing.program, timing.schedule, name))
        meta = describe(placed.module, target, precision, placed.plan)
        meta = dataclasses.replace(
            meta, schedule=timing.schedule.to_json(), cuda_graph=cuda_graph, function=name
        )
        metas.append(with_rescheduled(meta, program.rescheduled))
    meta = dataclasses.replace(metas[0], others=tuple(metas[1:]))
    with report.stage("link"):
        device = Plan.from_json(meta.plan).device
        linked = CompiledModule(link_together(parts, [description(meta, device)]), meta)
    with report.stage("keep for the next build"):
        return kept.keep(linked, decisive(placements))
