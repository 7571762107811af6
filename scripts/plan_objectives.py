"""The plan of a network under each objective, and what changes between them.

    python scripts/plan_objectives.py resnet50.relay --batches 8 256 --out plans.md

Places from records (shipped ones, or those given), so that no GPU is needed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from convoy.frontend import model_file as models
from convoy.ir.measurement import Measurement
from convoy.ir.objective import OBJECTIVES
from convoy.ir.plan import Choice, Plan
from convoy.placement import explain
from convoy.placement.api import place
from convoy.records import environment
from convoy.report import tables

CHANGES = (
    "op",
    "shape",
    "epilogue",
    "count",
    "graph",
    "kernel-only us",
    "end-to-end us",
    "sync",
    "kernel-only us",
    "end-to-end us",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--batches", nargs="+", type=int, default=[8, 256])
    parser.add_argument("--precision", default="float16")
    parser.add_argument("--records", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=None, help="also write markdown")
    args = parser.parse_args()
    parts = [f"# {args.model.stem}: plans by objective\n"]
    for batch in args.batches:
        mod = models.read(args.model, batch=batch)
        plans = {
            objective: place(
                mod,
                precision=args.precision,
                objective=objective,
                records=args.records,
                measure=False,
            ).plan
            for objective in OBJECTIVES
        }
        parts += report(batch, plans)
    parts.append(f"Environment asked for: {environment.for_device(plans['graph'].device)}\n")
    text = "\n".join(parts)
    print(text)
    if args.out:
        args.out.write_text(text, encoding="utf-8")


def report(batch: int, plans: dict[str, Plan]) -> list[str]:
    """Markdown of one batch size: a table for each objective, then the changes."""
    parts = []
    for objective, plan in plans.items():
        parts.append(f"## N={batch}, objective {objective}\n\n{explain.summary(plan)}\n")
        parts.append(tables.markdown(explain.COLUMNS, explain.rows(plan)) + "\n")
    rows = changes(plans["graph"], plans["sync"])
    parts.append(f"## N={batch}: what changes backend between graph and sync\n")
    parts.append(tables.markdown(CHANGES, rows) + "\n" if rows else "Nothing.\n")
    return parts


def changes(graph: Plan, sync: Plan) -> list[list[str]]:
    """A row for each operation (by its root) whose backend or fused epilogue differs, repeated
    ones counted."""
    theirs = {_root(choice): choice for choice in sync.choices}
    counted: dict[tuple[str, ...], int] = {}
    for mine in graph.choices:
        other = theirs.get(_root(mine))
        if other is None or mine.chosen.candidate.backend == other.chosen.candidate.backend:
            continue
        w = mine.workload
        row = (
            w.op,
            explain.shape_text(w),
            f"{w.epilogue.name or '-'}",
            *_cell(mine),
            *_cell(other),
        )
        counted[row] = counted.get(row, 0) + 1
    return [[*row[:3], str(count), *row[3:]] for row, count in counted.items()]


def _root(choice: Choice) -> str:
    return choice.region.split("#")[0]


def _cell(choice: Choice) -> tuple[str, str, str]:
    figure: Measurement = choice.chosen.measurement
    return (
        f"{choice.chosen.candidate.backend}",
        f"{figure.kernel_us or 0:.2f}",
        f"{figure.e2e_us or 0:.2f}",
    )


if __name__ == "__main__":
    main()
