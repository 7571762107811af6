"""The systems of the placement benchmark, and its tables.

A plan's name is ``variant/objective``, with " x4" where it runs on up to 4 streams. Variants:
``cudnn`` and ``cutlass`` alone (the rest on TVM), the same convolution by convolution
(``cudnn-greedy``), ``greedy`` and ``exact`` placements over all backends, ``evolved``, and TVM's
own kernels for everything (``tvm/any``). Each mode runs the plans made for its objective, and the
exact cover of another objective, which shows the cost of the wrong metric.

The evolutionary search chooses among the plans by the even rounds and is reported, like all that
it is compared with, by the odd ones.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import geometric_mean as geomean
from typing import Any

from .rows import Row
from .systems import ALL, System

MODES = ("graph", "stream", "sync")
SINGLES = {"cudnn": ("cudnn", "tvm"), "cutlass": ("cutlass", "tvm")}
#: The same backends, each convolution by itself: no parallel branches as one convolution, and the
#: longest fusion that pays by itself. As CUDA graphs only.
GREEDY_SINGLES = tuple(f"{name}-greedy" for name in SINGLES)
EXACT = "exact"
STREAMS = 4
TVM_MOST_BATCH = 8  # larger ones take TVM's kernels seconds
#: The objective whose plan is run in a mode for the cost of the wrong metric.
WRONG = {"graph": "sync", "stream": "graph", "sync": "graph"}


def systems(mode: str, batch: int, backends: tuple[str, ...] = ALL) -> list[System]:
    """The systems compared in a mode at a batch size."""

    def system(variant: str, objective: str = mode, streams: int = 1) -> System:
        used = SINGLES.get(variant.removesuffix("-greedy"), backends)
        search = "greedy" if variant.endswith("greedy") else EXACT
        search = "evolve" if variant == "evolved" else search
        name = f"{variant}/{objective}" + (f" x{streams}" if streams > 1 else "")
        return System(name, used, streams, mode, objective, search)

    found = [system(variant) for variant in (*SINGLES, "greedy", EXACT)]
    if mode == "graph":
        found += [system(variant) for variant in GREEDY_SINGLES]
        streamed = (*SINGLES, EXACT, "evolved")
        found += [system(variant, streams=STREAMS) for variant in streamed]
    found.append(system(EXACT, WRONG[mode]))
    if batch <= TVM_MOST_BATCH:
        found.append(System("tvm/any", ("tvm",), mode=mode))
    return found


@dataclass
class ModeResult:
    """Times of one network in one mode by plan, in milliseconds.

    ``ms`` and ``spread`` are of all rounds, ``odd`` of those that the search did not choose
    by; ``chosen`` is the plan that it takes.
    """

    ms: dict[str, float] = field(default_factory=dict)
    spread: dict[str, float] = field(default_factory=dict)
    odd: dict[str, float] = field(default_factory=dict)
    predicted: dict[str, float] = field(default_factory=dict)
    chosen: str = ""

    def best_single(self, streams: bool = False) -> str:
        """The fastest plan of a single backend; with ``streams`` it may use several."""
        singles = [n for n in self.ms if n.split("/")[0] in SINGLES and (streams or " x" not in n)]
        return min(singles, key=self.ms.__getitem__, default="")

    def over_greedy_single(self, plan: str) -> float | None:
        """Speedup of a plan over the best single backend placed convolution by convolution."""
        alone = [ms for name, ms in self.ms.items() if name.split("/")[0] in GREEDY_SINGLES]
        return min(alone) / self.ms[plan] if alone and plan in self.ms else None

    def speedup(self, plan: str) -> float | None:
        """Speedup of a plan over the best single backend on one stream."""
        best = self.best_single()
        return self.ms[best] / self.ms[plan] if best and plan in self.ms else None

    def slower_than_single(self, plan: str) -> bool:
        """Return whether a plan is slower than the best single backend by more than the spread."""
        best = self.best_single()
        if not best or plan not in self.ms:
            return False
        return self.ms[plan] - self.ms[best] > max(self.spread[plan], self.spread[best])


def mode_result(runs: Sequence[Row], mode: str) -> ModeResult:
    """The times of one network in one mode, and the choice of the search: the best seed,
    unless another plan is faster by more than both spreads (as placement/refine.py does it)."""
    even = {r["plan"]: r for r in runs if r["mode"] == mode and "ms" in r}
    result = ModeResult(
        {name: r["ms"] for name, r in even.items()},
        {name: r["spread_ms"] for name, r in even.items()},
        {name: r["odd_ms"] for name, r in even.items()},
        {name: r["predicted_ms"] for name, r in even.items() if "predicted_ms" in r},
    )

    def faster(names: list[str], than: str) -> str:
        """The fastest of those that are faster by more than both spreads, or ``than``."""
        for name in sorted(names, key=lambda n: even[n]["even_ms"]):
            spreads = [even[n]["even_spread_ms"] for n in (name, than or name)]
            if not than or even[than]["even_ms"] - even[name]["even_ms"] > max(spreads):
                return name
        return than

    seeds = {f"{variant}/{mode}" for variant in (*SINGLES, EXACT, "greedy")}
    seed = faster([n for n in even if n in seeds], "")
    result.chosen = faster([n for n in even if n.endswith(f"/{mode} x{STREAMS}")], seed)
    return result


TIME_COLUMNS = (
    "network", "mode", "plan", "ms", "+-", "best single / this", "predicted", "error",
    "output differs",
)  # fmt: skip
SUMMARY_COLUMNS = (
    "network", "mode", "best single", "ms", "exact cover", "by convolution", "evolutionary search",
    "its plan", "wrong metric", "prediction's error",
)  # fmt: skip


def cases(runs: Sequence[Row]) -> dict[str, list[Row]]:
    """Runs by network and batch size."""
    found: dict[str, list[Row]] = {}
    for run in sorted(runs, key=lambda r: (r["network"], r["batch"])):
        found.setdefault(f"{run['network']} N={run['batch']}", []).append(run)
    return found


def times(runs: Sequence[Row]) -> list[list[str]]:
    """One row for each run."""
    rows = []
    for key, own in cases(runs).items():
        results = {mode: mode_result(own, mode) for mode in MODES}
        for run in own:
            if "ms" not in run:
                continue
            predicted, speedup = run.get("predicted_ms"), results[run["mode"]].speedup(run["plan"])
            rows.append(
                [
                    key, run["mode"], run["plan"], f"{run['ms']:.4f}", f"{run['spread_ms']:.4f}",
                    f"{speedup:.3f}x" if speedup else "-",
                    f"{predicted:.4f}" if predicted else "-",
                    f"{100 * (predicted / run['ms'] - 1):+.1f}%" if predicted else "-",
                    f"{run['differs']:.1e}",
                ]
            )  # fmt: skip
    return rows


def overview(runs: Sequence[Row]) -> tuple[list[list[str]], list[str]]:
    """A row for each network and mode, and for each mode a line over all networks."""
    rows: list[list[str]] = []
    lines: list[str] = []
    for mode in MODES:
        exact, alone, second, beside, errors, slower = [], [], [], [], [], []
        for key, own in cases(runs).items():
            result = mode_result(own, mode)
            best, plan = result.best_single(), f"{EXACT}/{mode}"
            if not best or plan not in result.ms:
                continue
            misses = [abs(ms / result.ms[n] - 1) for n, ms in result.predicted.items()]
            speedup, greedy = result.speedup(plan) or 0.0, result.over_greedy_single(plan)
            odd = min(result.odd[n] for n in result.ms if n in {f"{v}/{mode}" for v in SINGLES})
            refined = odd / result.odd[result.chosen]
            wrong = result.ms.get(f"{EXACT}/{WRONG[mode]}")
            lost = f"{100 * (wrong / result.ms[plan] - 1):+.1f}%" if wrong else "-"
            exact.append(speedup)
            alone += [greedy] if greedy else []
            second.append(refined)
            streamed = result.best_single(streams=True)
            beside.append(result.odd[streamed] / result.odd[result.chosen])
            errors += misses
            slower += [key] if result.slower_than_single(plan) else []
            rows.append(
                [
                    key, mode, best, f"{result.ms[best]:.4f}", f"{speedup:.3f}x",
                    f"{greedy:.3f}x" if greedy else "-", f"{refined:.3f}x",
                    result.chosen, lost,
                    f"{100 * statistics.mean(misses):.1f}%" if misses else "-",
                ]
            )  # fmt: skip
        if exact:
            error = f"{100 * statistics.mean(errors):.1f}%" if errors else "-"
            beyond = f" ({geomean(alone):.3f}x over one placed by convolution)" if alone else ""
            lines.append(
                f"{mode}: geometric-mean speedup (least) over the best single backend: exact cover"
                f" {geomean(exact):.3f}x ({min(exact):.3f}x){beyond}, evolutionary search"
                f" {geomean(second):.3f}x ({min(second):.3f}x), or {geomean(beside):.3f}x"
                f" ({min(beside):.3f}x) over one on several streams; mean absolute error of"
                f" prediction {error}; slower than a single backend by more than the spread:"
                f" {', '.join(slower) or 'none'}"
            )
    return rows, lines


def table_rows(runs: Sequence[Row]) -> list[dict[str, Any]]:
    """Milliseconds as CUDA graphs by system, as the README shows them."""
    rows = []
    for own in cases(runs).values():
        result = mode_result(own, "graph")
        plans = {
            "cuDNN alone": "cudnn/graph", "CUTLASS alone": "cutlass/graph",
            "TVM alone": "tvm/any", "placed": f"{EXACT}/graph",
            "best single backend, 4 streams": result.best_single(streams=True),
            "evolutionary search, 4 streams": result.chosen,
        }  # fmt: skip
        case = {"model": own[0]["network"], "batch": own[0]["batch"]}
        rows += [
            {"system": system, **case, "ms": result.ms[plan]}
            for system, plan in plans.items()
            if plan in result.ms
        ]
    return rows


def markdown(runs: Sequence[Row]) -> str:
    """All tables as Markdown."""
    from convoy.report import tables

    rows, lines = overview(runs)
    parts = [tables.markdown(SUMMARY_COLUMNS, rows), *(f"- {line}" for line in lines)]
    parts += ["", "## All times", "", tables.markdown(TIME_COLUMNS, times(runs))]
    return "\n".join(parts)
