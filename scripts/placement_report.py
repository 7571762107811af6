"""Tables and the JSON of bench_placement.py.

    python scripts/placement_report.py benchmarks/results/h200/DATE-placement.json

prints the tables of a saved file as Markdown.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from placement_cases import GREEDY_SINGLES, MODES, PLACED, SINGLES, native_key, summary

SECOND = "second level"
#: Plans whose choices are saved.
KEPT = (*(f"{PLACED}/{mode}" for mode in MODES), *(f"{single}/graph" for single in SINGLES))
#: What a mode loses by a plan that was made for another one's cost.
WRONG = {"graph": "sync", "stream": "graph", "sync": "graph"}


@dataclass
class ModeResult:
    """One network in one mode: milliseconds by plan, of all rounds (``ms``, ``spread``) and of the
    odd ones (``fair``), which the second level did not choose by."""

    ms: dict[str, float] = field(default_factory=dict)
    spread: dict[str, float] = field(default_factory=dict)
    fair: dict[str, float] = field(default_factory=dict)
    chosen: str = ""

    def best_single(self, streams: bool = False) -> str:
        """The label of the fastest single backend; with ``streams`` it may be on several."""
        singles = [n for n in self.ms if n.split("/")[0] in SINGLES and (streams or " x" not in n)]
        return min(singles, key=self.ms.__getitem__, default="")

    def over_greedy_single(self, label: str) -> float | None:
        """The same against the best single backend that is placed convolution by convolution."""
        alone = [ms for name, ms in self.ms.items() if name.split("/")[0] in GREEDY_SINGLES]
        return min(alone) / self.ms[label] if alone and label in self.ms else None

    def gain(self, label: str) -> float | None:
        """Time of the best single backend on one stream over that of a plan."""
        best = self.best_single()
        return self.ms[best] / self.ms[label] if best and label in self.ms else None

    def slower_than_single(self, label: str) -> bool:
        """Whether a plan is slower than the best single backend by more than the spread."""
        best = self.best_single()
        if not best or label not in self.ms:
            return False
        return self.ms[label] - self.ms[best] > max(self.spread[label], self.spread[best])


def mode_result(case: dict[str, Any], mode: str) -> ModeResult:
    """What was measured of a case in one mode, and what the second level takes of it: the best
    seed, unless another plan is faster by more than both spreads."""
    runs = {n: r for n, r in case.get("runs", {}).get(mode, {}).items() if "ms" in r}
    result = ModeResult({n: r["ms"] for n, r in runs.items()})
    result.spread = {n: r["spread_ms"] for n, r in runs.items()}
    even = {}
    for name, run in runs.items():
        rounds = run["rounds"]
        even[name] = summary([ms for each in rounds[::2] for ms in each])
        result.fair[name] = statistics.median([ms for each in rounds[1::2] for ms in each])

    def faster(names: list[str], than: str) -> str:
        """The fastest of those that are faster by more than both spreads, or ``than``."""
        for name in sorted(names, key=lambda n: even[n]["ms"]):
            spread = max(even[name]["spread_ms"], even[than]["spread_ms"]) if than else 0.0
            if not than or even[than]["ms"] - even[name]["ms"] > spread:
                return name
        return than

    # As placement/refine.py does it.
    seeds = {f"{variant}/{mode}" for variant in (*SINGLES, PLACED, "greedy")}
    seed = faster([n for n in even if n in seeds], "")
    result.chosen = faster([n for n in even if n.endswith(f"/{mode} x4")], seed)
    return result


def predict(case: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Predicted microseconds by mode and run, as they were saved, or else sums of the figures of
    candidates and of TVM's kernels, which were measured in the same run. Several streams are not
    predicted."""
    from convoy.ir import objective as objectives
    from convoy.ir.measurement import Measurement

    if "predicted_us" in case:
        return dict(case["predicted_us"])
    found: dict[str, dict[str, float]] = {mode: {} for mode in MODES}
    for mode in MODES:
        for label in case["runs"].get(mode, {}):
            calls, plan = case["calls"].get(label), case["plans"].get(label)
            if calls is None or plan is None:
                continue
            native = [case["native"].get(native_key(*call), {}) for call in calls]
            chosen = [choice["chosen"]["measurement"] for choice in plan["plan"]["choices"]]
            if all("kernel_us" in figure for figure in (*native, *chosen)):
                figures = [Measurement.from_json(figure) for figure in (*native, *chosen)]
                found[mode][label] = objectives.total(figures, mode)
    return found


def flips(case: dict[str, Any]) -> list[list[str]]:
    """Operations whose kernel differs between the exact covers for ``graph`` and ``sync``."""
    if "flips" in case:
        return list(case["flips"])
    plans = [case["plans"].get(f"{PLACED}/{o}", {}).get("plan") for o in ("graph", "sync")]
    if None in plans:
        return []
    from convoy.ir.plan import Plan
    from convoy.placement import explain

    graph, sync = map(Plan.from_json, plans)
    theirs = {c.region.split("#")[0]: c for c in sync.choices}
    rows: dict[tuple[str, ...], int] = {}
    for mine in graph.choices:
        other = theirs.get(mine.region.split("#")[0])
        if other is None or other.chosen.candidate.key == mine.chosen.candidate.key:
            continue
        cells = [mine.workload.op, explain.shape_text(mine.workload)]
        for choice in (mine, other):
            figure = choice.chosen.measurement
            cells += [
                choice.chosen.candidate.key,
                f"{figure.kernel_us or 0:.2f}",
                f"{figure.e2e_us or 0:.2f}",
            ]
        rows[tuple(cells)] = rows.get(tuple(cells), 0) + 1
    return [[*cells, str(count)] for cells, count in rows.items()]


def in_context(case: dict[str, Any]) -> dict[str, dict[str, list[float]]]:
    """By plan and backend: launches, microseconds inside the network, the same alone with a warm
    cache, and as the objective counts them. TVM's kernels have no figures of their own here."""
    if "in_context" in case:
        return dict(case["in_context"])
    from convoy.ir import objective as objectives
    from convoy.ir.measurement import Measurement

    found: dict[str, dict[str, list[float]]] = {}
    for label, context in case.get("context", {}).items():
        plan = (case["plans"].get(label) or {}).get("plan")
        if plan is None or "calls" not in context:
            continue
        chosen = {f"convoy_{i}_{c['workload'].get('op', 'fprop')}": c["chosen"]
                  for i, c in enumerate(plan["choices"])}  # fmt: skip
        sums: dict[str, list[float]] = {}
        for symbol, _, us in context["calls"]:
            choice = chosen.get(symbol)
            backend, figure = "tvm", Measurement()
            if choice is not None:
                backend = choice["candidate"]["backend"]
                figure = Measurement.from_json(choice["measurement"])
            own = sums.setdefault(backend, [0, 0.0, 0.0, 0.0])
            alone = figure.kernel_us or 0.0
            for i, value in enumerate((1, us, alone, objectives.device_us(figure))):
                own[i] += value
        found[label] = {b: [round(v, 1) for v in own] for b, own in sorted(sums.items())}
    return found


CONTEXT_COLUMNS = (
    "network", "plan", "backend", "launches", "in the network us", "alone us", "as counted us",
)  # fmt: skip
FLIP_COLUMNS = (
    "op", "shape", "graph", "kernel us", "end-to-end us", "sync", "kernel us", "end-to-end us",
    "count",
)  # fmt: skip
TIME_COLUMNS = (
    "network", "mode", "plan", "ms", "+-", "best single / this", "predicted", "error",
    "output differs",
)  # fmt: skip
SUMMARY_COLUMNS = (
    "network", "mode", "best single", "ms", "exact cover", "by convolution", "second level",
    "its plan", "wrong metric", "prediction's error",
)  # fmt: skip


def times(cases: dict[str, dict[str, Any]]) -> list[list[str]]:
    """One row for each run."""
    rows = []
    for key, case in cases.items():
        predicted = predict(case)
        for mode in MODES:
            result = mode_result(case, mode)
            for label, ms in result.ms.items():
                us, gain = predicted[mode].get(label), result.gain(label)
                rows.append(
                    [
                        key, mode, label, f"{ms:.4f}", f"{result.spread[label]:.4f}",
                        f"{gain:.3f}x" if gain else "-",
                        f"{us / 1e3:.4f}" if us else "-",
                        f"{100 * (us / ms / 1e3 - 1):+.1f}%" if us else "-",
                        f"{case['runs'][mode][label]['differs']:.1e}",
                    ]
                )  # fmt: skip
    return rows


def overview(cases: dict[str, dict[str, Any]]) -> tuple[list[list[str]], list[str]]:
    """A row for each network and mode, and over all networks a line for each mode."""
    rows: list[list[str]] = []
    lines: list[str] = []
    predicted = {key: predict(case) for key, case in cases.items()}
    for mode in MODES:
        exact, alone, second, beside, errors, slower = [], [], [], [], [], []
        for key, case in cases.items():
            result = mode_result(case, mode)
            best, label = result.best_single(), f"{PLACED}/{mode}"
            if not best or label not in result.ms:
                continue
            misses = [
                abs(us / result.ms[name] / 1e3 - 1) for name, us in predicted[key][mode].items()
            ]
            gain = result.gain(label) or 0.0
            fair = min(result.fair[n] for n in result.ms if n in {f"{v}/{mode}" for v in SINGLES})
            refined = fair / result.fair[result.chosen]
            wrong = result.ms.get(f"{PLACED}/{WRONG[mode]}")
            lost = f"{100 * (wrong / result.ms[label] - 1):+.1f}%" if wrong else "-"
            exact.append(gain)
            greedy = result.over_greedy_single(label)
            alone += [greedy] if greedy else []
            second.append(refined)
            streamed = result.best_single(streams=True)
            beside.append(result.fair[streamed] / result.fair[result.chosen])
            errors += misses
            slower += [key] if result.slower_than_single(label) else []
            rows.append(
                [
                    key, mode, best, f"{result.ms[best]:.4f}", f"{gain:.3f}x",
                    f"{greedy:.3f}x" if greedy else "-", f"{refined:.3f}x",
                    result.chosen, lost,
                    f"{100 * statistics.mean(misses):.1f}%" if misses else "-",
                ]
            )  # fmt: skip
        if exact:
            error = f"{100 * statistics.mean(errors):.1f}%" if errors else "-"
            beyond = f" ({_geomean(alone):.3f}x of one placed by convolution)" if alone else ""
            lines.append(
                f"{mode}: against the best single backend, geomean (least): exact cover"
                f" {_geomean(exact):.3f}x ({min(exact):.3f}x){beyond}, second level"
                f" {_geomean(second):.3f}x ({min(second):.3f}x), or {_geomean(beside):.3f}x"
                f" ({min(beside):.3f}x) of one on several streams; mean absolute error of"
                f" prediction {error}; slower than a single backend by more than the spread:"
                f" {', '.join(slower) or 'none'}"
            )
    return rows, lines


def _geomean(values: Sequence[float]) -> float:
    return math.exp(statistics.mean(map(math.log, values)))


def report(cases: dict[str, dict[str, Any]]) -> None:
    """Tables: times by mode, operations that flip, and what there is for each network and mode."""
    from convoy.report import tables

    print(tables.plain(TIME_COLUMNS, times(cases)))
    for key, case in cases.items():
        print(f"\n{key}: {len(flips(case))} distinct operations flip between graph and sync")
    rows, lines = overview(cases)
    print(tables.plain(SUMMARY_COLUMNS, rows))
    print("\n".join(lines))


def save(out: str, cases: dict[str, dict[str, Any]]) -> None:
    """Everything as JSON; ``rows`` are the times as CUDA graphs, for the tables of the readme."""
    from convoy.records import environment

    kept, table = {}, []
    for key, case in cases.items():
        left_out = ("plans", "calls", "native", "context")
        kept[key] = {k: v for k, v in case.items() if k not in left_out}
        kept[key]["in_context"] = in_context(case)
        kept[key]["predicted_us"] = predict(case)
        kept[key]["flips"] = flips(case)
        kept[key]["second_level"] = {m: mode_result(case, m).chosen for m in MODES}
        kept[key]["plans"] = {
            name: {
                **{k: v for k, v in plan.items() if k != "plan"},
                "choices": _choices(plan) if name in KEPT else [],
            }
            for name, plan in case["plans"].items()
        }  # fmt: skip
        table += table_rows(case)
    result = {"environment": environment.current().to_json(), "rows": table, "cases": kept}
    Path(out).write_text(json.dumps(result, indent=None, separators=(",", ":")))


def _choices(plan: dict[str, Any]) -> list[list[Any]]:
    return [_choice(c) for c in (plan.get("plan") or {"choices": []})["choices"]]


def _choice(choice: dict[str, Any]) -> list[Any]:
    """Region, backend, kernel, then warm and cold kernel, enqueue and end-to-end microseconds."""
    candidate, figure = choice["chosen"]["candidate"], choice["chosen"]["measurement"]
    sides = ("kernel_us", "cold_us", "enqueue_us", "e2e_us")
    times = [figure.get(side) and round(figure[side], 3) for side in sides]
    return [choice["region"], candidate["backend"], candidate["kernel"], *times]


def table_rows(case: dict[str, Any]) -> list[dict[str, Any]]:
    """Milliseconds of a replayed graph by system."""
    result = mode_result(case, "graph")
    labels = {
        "cuDNN alone": "cudnn/graph", "CUTLASS alone": "cutlass/graph", "TVM alone": "tvm/any",
        "placed": f"{PLACED}/graph",
        "best single backend, 4 streams": result.best_single(streams=True),
        "second level, 4 streams": result.chosen,
    }  # fmt: skip
    return [
        {"system": system, "model": case["network"], "batch": case["batch"], "ms": result.ms[label]}
        for system, label in labels.items()
        if label in result.ms
    ]


def markdown(cases: dict[str, dict[str, Any]]) -> str:
    """All tables of saved cases."""
    from convoy.report import tables

    rows, lines = overview(cases)
    parts = [tables.markdown(SUMMARY_COLUMNS, rows), *(f"- {line}" for line in lines)]
    parts += ["", "## All times", "", tables.markdown(TIME_COLUMNS, times(cases))]
    context = [
        [key, label, backend, str(int(own[0])), *(f"{us:.1f}" for us in own[1:])]
        for key, case in cases.items()
        for label, sums in in_context(case).items()
        for backend, own in sums.items()
    ]
    if context:
        parts += ["", "## Kernels inside the network and alone", ""]
        parts.append(tables.markdown(CONTEXT_COLUMNS, context))
    for key, case in cases.items():
        parts += ["", f"## {key}: operations that flip between kernel-only and end-to-end cost", ""]
        parts.append(tables.markdown(FLIP_COLUMNS, flips(case)))
    return "\n".join(parts)


if __name__ == "__main__":
    print(markdown(json.loads(Path(sys.argv[1]).read_text())["cases"]))
