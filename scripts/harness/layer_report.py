"""Tables of measured layers, as text and Markdown."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from convoy.report.tables import Column, markdown, plain

from .layer_lists import Layer
from .layers import (
    CONVOY,
    CUDNN,
    CUTLASS,
    END_TO_END,
    HOPPER,
    KERNEL_ONLY,
    METRICS,
    SYSTEMS,
    Result,
)


@dataclass(frozen=True)
class Ceilings:
    """Peaks that the machine reaches: bytes per second of a copy, operations per second of a GEMM.

    ``measured`` tells whether they were measured in the same run.
    """

    bandwidth: float
    flops: float
    measured: bool = True

    def floor_us(self, layer: Layer) -> float:
        """Least time of a layer: the larger of its bytes and its operations over the ceilings.

        A strided dgrad is charged the multiplications of its forward problem, not the s * s times
        as many of a convolution over the upsampled dy.
        """
        w = layer.workload
        return max(w.bytes_moved / self.bandwidth, w.flops / self.flops) * 1e6


def groups(results: Sequence[Result]) -> Iterator[tuple[str, list[Result]]]:
    """Results of one direction and batch size at a time, with a title."""

    def key(result: Result) -> tuple[str, int, str]:
        w = result.layer.workload
        return w.op, w.n, w.dtype

    for (op, n, dtype), found in itertools.groupby(results, key):
        yield f"{op}, N = {n}, {dtype}", list(found)


def total(results: Sequence[Result], system: str, metric: str, stem: bool) -> float:
    """Count-weighted time in microseconds over a network; NaN where the system lacks a layer."""
    chosen = [r for r in results if stem or not r.layer.is_stem]
    return sum(r.layer.count * r.us(system, metric) for r in chosen)


def layer_table(results: Sequence[Result], ceilings: Ceilings, metric: str) -> list[Column]:
    """Columns for the results of one group; the rows are the results themselves."""

    def us(system: str) -> Column:
        return Column(system, lambda r: _number(r.us(system, metric)))

    def tflops(r: Result) -> float | None:
        return _number(r.layer.workload.flops / r.us(CONVOY, metric) / 1e6)

    columns = [Column("layer", lambda r: r.layer.label), Column("x", lambda r: r.layer.count)]
    columns += [us(s) for s in SYSTEMS if any(not math.isnan(r.us(s, metric)) for r in results)]
    columns += [
        Column("of cuDNN", lambda r: _number(r.us(CONVOY, metric) / r.us(CUDNN, metric))),
        Column("TFLOP/s", tflops, digits=0),
        Column(
            "of roofline",
            lambda r: _number(r.us(CONVOY, metric) / ceilings.floor_us(r.layer)),
        ),
        Column(f"chosen by {METRICS[metric]}", lambda r: r.choice(metric)),
    ]
    names = dict.fromkeys(name for r in results for name, _ in r.layer.reference_us)
    columns += [
        Column(f"{name}, posted", lambda r, n=name: dict(r.layer.reference_us).get(n), digits=1)
        for name in names
    ]
    return columns


def totals(results: Sequence[Result]) -> tuple[list[Column], list[list[object]]]:
    """One row for each metric and set of layers, over a whole network."""
    stems = any(r.layer.is_stem for r in results)
    rows: list[list[object]] = []
    for metric, stem in itertools.product(METRICS, (False, True) if stems else (False,)):
        sums = {s: total(results, s, metric, stem) for s in SYSTEMS}
        if math.isnan(sums[CONVOY]):
            continue
        count = sum(r.layer.count for r in results if stem or not r.layer.is_stem)
        name = f"{count} convolutions" + (" with the stem" if stem else "")
        row: list[object] = [METRICS[metric], name]
        row += [_number(sums[s]) for s in SYSTEMS]
        row += [_number(sums[s] / sums[CUDNN]) for s in (CONVOY, CUTLASS)]
        rows.append(row)
    columns = [Column("metric"), Column("over"), *(Column(s, digits=0) for s in SYSTEMS)]
    columns += [Column("Convoy of cuDNN", digits=3), Column("CUTLASS of cuDNN", digits=3)]
    return columns, rows


def disagreements(results: Sequence[Result]) -> tuple[list[Column], list[list[object]]]:
    """Layers where another library wins by kernel-only than by end-to-end time."""
    rows: list[list[object]] = []
    for r in results:
        first, second = (r.choice(m).split(":")[0] for m in (KERNEL_ONLY, END_TO_END))
        if first == second:
            continue
        rival = {"cudnn": CUDNN, "cutlass": CUTLASS, "hopper": HOPPER}
        times = [r.us(rival.get(b, b), m) for m in METRICS for b in (first, second)]
        w = r.layer.workload
        rows.append([f"{w.op} N={w.n}", r.layer.label, first, second, *map(_number, times)])
    columns = [
        *("problem", "layer", "by kernel-only", "by end-to-end"),
        *("kernel us of first", "of second", "end-to-end us of first", "of second"),
    ]
    return [Column(c, digits=1) for c in columns], rows


def as_markdown(title: str, how: str, results: Sequence[Result], ceilings: Ceilings) -> str:
    """All tables as one page; ``how`` describes the run and its options."""
    parts = [f"# {title}", how, _legend(ceilings)]
    for name, found in groups(results):
        parts += [f"## {name}", markdown(*totals(found))] if totals(found)[1] else [f"## {name}"]
        for metric, title in METRICS.items():
            parts += [f"### {title}, us", markdown(layer_table(found, ceilings, metric), found)]
    parts += ["## Where kernel-only and end-to-end times disagree", _disagreement_summary(results)]
    columns, rows = disagreements(results)
    return "\n\n".join([*parts, markdown(columns, rows)] if rows else parts) + "\n"


def as_text(name: str, results: Sequence[Result], ceilings: Ceilings) -> str:
    """One group for the terminal, kernel-only, with its totals."""
    parts = [name, plain(layer_table(results, ceilings, KERNEL_ONLY), results)]
    columns, rows = totals(results)
    return "\n".join([*parts, "", plain(columns, rows)] if rows else parts) + "\n"


def disagreement_text(results: Sequence[Result]) -> str:
    columns, rows = disagreements(results)
    return _disagreement_summary(results) + "\n" + (plain(columns, rows) if rows else "")


def _legend(ceilings: Ceilings) -> str:
    return (
        "Times in microseconds, medians. *kernel-only*: device time of one launch in a replayed"
        " CUDA graph of 20; *end-to-end*: one synchronized call. *cuDNN first* is what cuDNN's"
        " heuristics propose first, *cuDNN best* the fastest plan measured. TFLOP/s count the"
        " multiplications of the forward problem, also for strided dgrad. The roofline is the"
        f" larger of bytes at {ceilings.bandwidth / 1e12:.2f} TB/s and operations at"
        f" {ceilings.flops / 1e12:.0f} TFLOP/s"
        + (
            ", both measured in the same run."
            if ceilings.measured
            else ", measured in another run."
        )
    )


def _disagreement_summary(results: Sequence[Result]) -> str:
    rows = disagreements(results)[1]
    return f"The two metrics choose different libraries for {len(rows)} of {len(results)} problems."


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
