"""Measure the time of a compiled network by layer."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..ir.kernel_words import NATIVE, readable
from ..report import layers, timeline
from ..report.layers import Layer

if TYPE_CHECKING:
    from ..progress import Progress
    from ..runtime.compiled import CompiledModule
    from ..runtime.session import Session

#: Kernels that TVM compiled with a convolution or a matmul in them; the layers have names.
_ANCHOR = re.compile(r"conv\dd|matmul|dense")
#: Runs of which each kernel has its median time.
RUNS = 5


def by_layer(
    compiled: CompiledModule, session: Session, progress: Progress | None = None
) -> list[Layer]:
    """The layers of a network, heaviest first.

    On a GPU the times are those of graphs with an event after one kernel at a time
    (:mod:`convoy.report.measured`), on the CPU those of a clock around each kernel. Empty for a GPU
    module without a schedule.
    """
    schedule = compiled.schedule
    if compiled.meta.target == "cuda":
        if schedule is None:
            return []
        from ..report.measured import measure

        predicted = timeline.predicted(schedule, compiled.plan)
        return layers.of_timelines([predicted, measure(compiled, progress=progress)])
    return watched(session, compiled.meta.layers)


def watched(
    session: Session,
    names: tuple[str, ...],
    clock: Callable[[], float] = time.perf_counter,
) -> list[Layer]:
    """Time each kernel of a session that runs on the CPU, as the median of RUNS.

    Args:
        session: With its inputs set.
        names: Names of the layers with a convolution or matmul, in order; used if there are as
            many such kernels.
    """
    found: list[list[tuple[str, float]]] = []
    started = [0.0]

    def watch(
        _function: object, name: str, before: bool, _result: object, *_arguments: object
    ) -> None:
        if name.startswith("vm."):
            return
        if before:
            started[0] = clock()
        else:
            found[-1].append((name, clock() - started[0]))

    session.run()
    session.observe(watch)
    try:
        for _ in range(RUNS):
            found.append([])
            session.run()
    finally:
        session.observe(None)
    symbols = [name for name, _ in found[0]]
    times = np.median([[seconds for _, seconds in run] for run in found], axis=0)
    labels = _labels(symbols, names)
    return layers.heaviest(
        [
            Layer(label, NATIVE, 1e6 * float(seconds), 0.0, None, True, symbol)
            for label, symbol, seconds in zip(labels, symbols, times, strict=True)
        ]
    )


def _labels(symbols: list[str], names: tuple[str, ...]) -> list[str]:
    """Names of kernels: that of the layer for a convolution or matmul, otherwise the operation."""
    labels = [readable(symbol) for symbol in symbols]
    anchors = [i for i, symbol in enumerate(symbols) if _ANCHOR.search(symbol)]
    if len(anchors) == len(names):
        for i, name in zip(anchors, names, strict=True):
            labels[i] = name or labels[i]
    return labels
