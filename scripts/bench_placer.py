"""Time the cover search from 50 to 5,000 ops, under each objective, with made-up figures.

    python scripts/bench_placer.py
    python scripts/bench_placer.py --families randwire --sizes 1000 --repeat 5

No GPU is needed. Every graph has two layouts with transitions between them and three backends.
``contested`` rows have kernels four times faster, so that host and device time of ``stream`` are
near each other, which is its hard case. Times are process time, so of one core where the solver
uses one; each row is the median of ``--repeat`` runs. Prints a table and writes JSON.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from convoy.ir.objective import OBJECTIVES
from convoy.placement.cover import Cover, find_cover, single_backend
from convoy.placement.synthetic import BACKENDS, FAMILIES, network
from convoy.placement.transition import BandwidthTransitions

SIZES = (50, 100, 200, 500, 1000, 2000, 5000)
CONTESTED_SPEED = 4.0
RESULTS = Path(__file__).resolve().parent.parent / "benchmarks" / "results" / "cpu"


def measured(family: str, size: int, objective: str, speed: float, repeat: int) -> dict[str, Any]:
    """One row: how long the search took, how good the cover is, and what proves it."""
    graph = network(family, size, speed=speed)
    transitions = BandwidthTransitions()
    seconds, walls = [], []
    cover: Cover | None = None
    for _ in range(repeat):
        start, wall = time.process_time(), time.perf_counter()
        cover = find_cover(graph, objective, transitions, BACKENDS)
        seconds.append(time.process_time() - start)
        walls.append(time.perf_counter() - wall)
    assert cover is not None
    singles = {
        name: single_backend(graph, [name, "tvm"], objective, transitions).optimum_us
        for name in BACKENDS
        if size <= 1000
    }
    return {
        "family": family + ("" if speed == 1.0 else " contested"),
        "objective": objective,
        "ops": len(graph.ops),
        "matches": len(graph.matches),
        "seconds": round(statistics.median(seconds), 3),
        "wall_seconds": round(statistics.median(walls), 3),
        "solver": "cuts" if cover.states else "integer",
        "states": cover.states,
        "cost_us": cover.total_us(),
        "optimum_us": cover.optimum_us,
        "bound_us": cover.bound_us,
        "gap": cover.gap,
        "best_single_us": min(singles.values()) if singles else None,
    }


def machine() -> dict[str, Any]:
    """Facts of this machine that times depend on."""
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        lines = [ln for ln in info.read_text().splitlines() if ln.startswith("model name")]
        model = lines[0].split(":", 1)[1].strip() if lines else model
    import numpy
    import scipy

    return {
        "cpu": model,
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "platform": platform.platform(),
        "gpu": "none",
    }


def table(rows: list[dict[str, Any]]) -> Table:
    shown = Table(
        "family", "objective", "ops", "matches", "solver", "s", "optimum us", "gap", "single"
    )
    for row in rows:
        single = row["best_single_us"]
        shown.add_row(
            row["family"],
            row["objective"],
            str(row["ops"]),
            str(row["matches"]),
            row["solver"],
            f"{row['seconds']:.2f}",
            f"{row['optimum_us']:.1f}",
            f"{row['gap']:.1e}" if row["gap"] else "exact",
            f"{single / row['optimum_us']:.2f}x" if single else "-",
        )
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--families", nargs="+", default=FAMILIES, choices=FAMILIES)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--objectives", nargs="+", default=OBJECTIVES, choices=OBJECTIVES)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--out", type=Path, help="JSON file (default: benchmarks/results/cpu)")
    options = parser.parse_args()
    cases = [
        (family, size, objective, speed)
        for family in options.families
        for size in options.sizes
        for objective in options.objectives
        for speed in ((1.0, CONTESTED_SPEED) if objective == "stream" else (1.0,))
    ]
    rows = []
    for family, size, objective, speed in cases:
        rows.append(measured(family, size, objective, speed, options.repeat))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    Console(width=120).print(table(rows))
    today = datetime.date.today().isoformat()
    out = options.out or RESULTS / f"placer-{today}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"date": today, "machine": machine(), "rows": rows}, indent=1)
    out.write_text(text + "\n", encoding="utf-8")
    print(f"written to {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
