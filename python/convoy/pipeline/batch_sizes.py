"""Compile a network for several batch sizes into one module with one set of weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm

from ..backends.base import Backend
from ..build_cache.source import Source
from ..ir.artifact import Meta
from ..ir.defaults import BACKENDS
from ..ir.plan import Plan
from ..lower.describe import describe
from ..lower.target import kind_of, with_arch
from ..placement.placement import Placement
from ..progress import Stages, stages
from ..runtime import present_device
from ..runtime.compiled import CompiledModule
from ..streams.link import Part, link_together
from ..streams.schedule import ONE_STREAM, check_streams, schedule
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
    compiler = _Compiler(target, precision, backends, streams, cuda_graph, report)
    placements: list[Placement] = []
    functions: list[tuple[Part, Meta]] = []
    for i, (mod, name) in enumerate(zip(mods, names, strict=True)):
        known = {"plan": plans[i]} if plans else {}
        placement = place(
            mod, precision=precision, streams=together, progress=report, **{**options, **known}
        )
        placements.append(placement)
        functions.append(compiler.function(placement, name, f"_{i}" if i else ""))
    parts, (first, *others) = zip(*functions, strict=True)
    meta = dataclasses.replace(first, others=tuple(others))
    with report.stage("link"):
        described = description(meta, placements[0].plan.device)
        linked = CompiledModule(link_together(parts, [described]), meta)
    with report.stage("keep for the next build"):
        return kept.keep(linked, decisive(placements))


@dataclass(frozen=True)
class _Compiler:
    """Options that all functions of a module share."""

    target: str | tvm.target.Target
    precision: str
    backends: Sequence[Backend]
    streams: int | str
    cuda_graph: bool
    report: Stages

    def function(self, placement: Placement, name: str, suffix: str) -> tuple[Part, Meta]:
        """Lower and schedule a placement, or that for one stream if the scheduler asks for it.

        Args:
            name: Of the function.
            suffix: Of the names of its kernels.

        Returns:
            What is to be linked, with its description.
        """
        plan = dataclasses.replace(placement.plan, suffix=suffix)
        placed = dataclasses.replace(placement, plan=plan)
        with self.report.stage("lower and compile"):
            target = with_arch(self.target, plan.device)
            program = lower(placed, target, self.backends)
        on_gpu = present_device() == plan.device
        with self.report.stage("schedule"):
            timing = schedule(
                program, plan, self.streams, on_gpu=on_gpu, cuda_graph=self.cuda_graph
            )
        if timing.hint == ONE_STREAM and placement.on_one_stream is not None:
            return self.function(placement.on_one_stream, name, suffix)
        meta = dataclasses.replace(
            describe(placed.module, self.target, self.precision, plan),
            schedule=timing.schedule.to_json(), cuda_graph=self.cuda_graph, function=name,
        )  # fmt: skip
        part = Part(program, timing.program, timing.schedule, name)
        return part, with_rescheduled(meta, program.rescheduled)
