"""Compile placements into one executable: a function for each, every weight once."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import tvm

from ..backends.base import Backend
from ..errors import NotSchedulable
from ..ir.artifact import Meta
from ..ir.defaults import BACKENDS
from ..lower.describe import describe
from ..lower.executable import lower_together
from ..lower.lowered import Lowered
from ..lower.target import with_arch
from ..placement.placement import Placement
from ..progress import Progress, Stages, stages
from ..runtime import present_device
from ..runtime.compiled import CompiledModule
from ..streams.link import Part, link
from ..streams.schedule import schedule
from ..threads import one_at_a_time
from ..tir import Rescheduled
from .lowering import description, lower
from .options import find_backends
from .rescheduled import with_rescheduled


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
    return compile_placements(
        [placement], target, precision,
        backends=backends, cuda_graph=cuda_graph, streams=streams, progress=progress,
    )  # fmt: skip


@one_at_a_time
def compile_placements(
    placements: Sequence[Placement],
    target: str | tvm.target.Target,
    precision: str,
    *,
    backends: Sequence[str | Backend] = BACKENDS,
    cuda_graph: bool = True,
    streams: int | str = "auto",
    progress: Progress | None = None,
) -> CompiledModule:
    """Compile a network as it was placed at each of its batch sizes; options as :func:`build`.

    The functions are called as :func:`function_names` says. Where the scheduler declines one of
    them, TVM compiles all of them for one stream, with a warning.
    """
    report = stages(progress)
    compiler = _Compiler(target, precision, find_backends(backends), cuda_graph, streams, report)
    names = function_names(len(placements))
    functions = [compiler.lowered(p, name) for p, name in zip(placements, names, strict=True)]
    try:
        scheduled = [compiler.scheduled(function) for function in functions]
    except NotSchedulable as err:
        warnings.warn(f"compiled for one stream: {err}", stacklevel=3)
        # TVM's own storage plan knows no tensors in others.
        pairs = zip(placements, names, strict=True)
        functions = [compiler.lowered(p, name, in_place=False) for p, name in pairs]
        return _compiled_unscheduled(functions, cuda_graph)
    parts, metas = zip(*scheduled, strict=True)
    meta = together(metas)
    with report.stage("link"):
        device = placements[0].plan.device
        return CompiledModule(link(parts, [description(meta, device)]), meta)


def function_names(count: int) -> list[str]:
    """Name the functions of a module for ``count`` batch sizes: main, main_1, ..."""
    return ["main", *(f"main_{i}" for i in range(1, count))]


def together(metas: Sequence[Meta]) -> Meta:
    """Describe a module by the descriptions of its functions."""
    return dataclasses.replace(metas[0], others=tuple(metas[1:]))


@dataclass(frozen=True)
class _Function:
    """A function of the module: what it was lowered from and to, and its description."""

    placement: Placement
    program: Lowered
    meta: Meta


@dataclass(frozen=True)
class _Compiler:
    """Options that all functions of a module share."""

    target: str | tvm.target.Target
    precision: str
    backends: Sequence[Backend]
    cuda_graph: bool
    streams: int | str
    report: Stages

    def lowered(self, placement: Placement, name: str, in_place: bool = True) -> _Function:
        """Lower a placement; the names of its kernels end as that of the function does."""
        plan = dataclasses.replace(placement.plan, suffix=name.removeprefix("main"))
        placement = dataclasses.replace(placement, plan=plan)
        meta = describe(placement.module, self.target, self.precision, plan)
        with self.report.stage("lower and compile"):
            target = with_arch(self.target, plan.device)
            program = lower(placement, target, self.backends, in_place)
        return _Function(placement, program, dataclasses.replace(meta, function=name))

    def scheduled(self, function: _Function) -> tuple[Part, Meta]:
        """Schedule a function, or its placement for one stream if the scheduler asks for that.

        Raises:
            NotSchedulable: The function has calls whose effects are unknown.
        """
        placement, program, name = function.placement, function.program, function.meta.function
        on_gpu = present_device() == placement.plan.device
        with self.report.stage("schedule"):
            timing = schedule(
                program, placement.plan, self.streams, on_gpu=on_gpu, cuda_graph=self.cuda_graph
            )
        if timing.wants_one_stream and placement.on_one_stream is not None:
            return self.scheduled(self.lowered(placement.on_one_stream, name))
        meta = dataclasses.replace(
            function.meta, schedule=timing.schedule.to_json(), cuda_graph=self.cuda_graph
        )
        part = Part(program, timing.program, timing.schedule, name)
        return part, with_rescheduled(meta, program.rescheduled)


def _compiled_unscheduled(functions: Sequence[_Function], cuda_graph: bool) -> CompiledModule:
    """Compile functions by TVM's own means, which captures CUDA graphs within them."""
    placement, program = functions[0].placement, functions[0].program
    meta = together([function.meta for function in functions])
    libraries = [library for function in functions for library in function.program.external]

    def external(kernels: list[Rescheduled]) -> list[tvm.runtime.Module]:
        described = dataclasses.replace(meta, rescheduled=tuple(map(str, kernels)))
        return [*libraries, description(described, placement.plan.device)]

    mods = {function.meta.function: function.placement.rewritten() for function in functions}
    executable, rescheduled = lower_together(mods, program.target, cuda_graph, external)
    return CompiledModule(executable, with_rescheduled(meta, rescheduled))
