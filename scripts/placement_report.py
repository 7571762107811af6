"""Tables and the JSON of bench_placement.py."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

from placement_cases import MODES, PLACED, SINGLES


def flips(case: dict[str, Any]) -> list[list[str]]:
    """Operations whose kernel differs between the exact covers for ``graph`` and ``sync``."""
    plans = [case["plans"].get(f"{PLACED}/{o}", {}).get("plan") for o in ("graph", "sync")]
    if None in plans:
        return []
    from convoy.placement import explain
    from convoy.placement.plan import Plan

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


FLIP_COLUMNS = (
    "op", "shape", "graph", "kernel us", "e2e us", "sync", "kernel us", "e2e us", "count",
)  # fmt: skip


def report(cases: dict[str, dict[str, Any]]) -> None:
    """Tables: times by mode, gain over the best single backend, errors of prediction, flips."""
    from convoy.report import tables

    rows, seconds = [], []
    gains, errors = {mode: [] for mode in MODES}, {mode: [] for mode in MODES}
    for key, case in cases.items():
        for mode in MODES:
            runs = {n: r for n, r in case.get("runs", {}).get(mode, {}).items() if "ms" in r}
            singles = [r["ms"] for n, r in runs.items() if n in [f"{v}/{mode}" for v in SINGLES]]
            best = min(singles, default=None)
            if mode == "graph" and best:
                seconds.append(best / min(r["ms"] for n, r in runs.items() if n != "exact/sync"))
            for name, run in runs.items():
                predicted = case["predicted_us"][mode].get(name)
                error = predicted / run["ms"] / 1e3 - 1 if predicted else None
                gain = best / run["ms"] if best else None
                if name == f"{PLACED}/{mode}":
                    gains[mode] += [gain] if gain else []
                if error is not None:
                    errors[mode].append(abs(error))
                rows.append(
                    [
                        key, mode, name, f"{run['ms']:.4f}", f"{run['spread_ms']:.4f}",
                        f"{gain:.3f}x" if gain else "-",
                        f"{predicted / 1e3:.4f}" if predicted else "-",
                        f"{100 * error:+.1f}%" if error is not None else "-",
                        f"{run['differs']:.1e}",
                    ]
                )  # fmt: skip
    columns = (
        "network", "mode", "plan", "ms", "+-", "best single / this", "predicted", "error",
        "output differs",
    )  # fmt: skip
    print(tables.plain(columns, rows))
    for key, case in cases.items():
        print(f"\n{key}: what flips between graph and sync")
        print(tables.plain(FLIP_COLUMNS, flips(case)))
    if seconds:
        mean = math.exp(statistics.mean(map(math.log, seconds)))
        print(f"graph: second level against the best single backend, geomean {mean:.3f}x")
    for mode in MODES:
        if gains[mode]:
            mean = math.exp(statistics.mean(map(math.log, gains[mode])))
            print(
                f"{mode}: exact cover against the best single backend, geomean {mean:.3f}x", end=""
            )
            print(f", least {min(gains[mode]):.3f}x; mean absolute error of prediction ", end="")
            print(f"{100 * statistics.mean(errors[mode]):.1f}%" if errors[mode] else "-")


def save(out: str, cases: dict[str, dict[str, Any]]) -> None:
    from convoy.measure import environment

    kept = {}
    for key, case in cases.items():
        kept[key] = {k: v for k, v in case.items() if k not in ("files", "plans")}
        kept[key]["flips"] = flips(case)
        kept[key]["plans"] = {
            name: {
                **{k: v for k, v in plan.items() if k != "plan"},
                "choices": [
                    [c["region"], c["chosen"]["candidate"]["backend"],
                     c["chosen"]["candidate"]["kernel"], c["chosen"]["measurement"]]
                    for c in (plan.get("plan") or {"choices": []})["choices"]
                ],
            }
            for name, plan in case["plans"].items()
        }  # fmt: skip
    result = {"environment": environment.current().to_json(), "cases": kept}
    Path(out).write_text(json.dumps(result, indent=None, separators=(",", ":")))
