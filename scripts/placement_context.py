"""What each kernel takes inside a network, beside what it takes by itself.

A plan is made from times of kernels that ran alone, again and again. Inside a network another
kernel ran before, other data are in the caches, and so are other instructions. ``bench_placement.py
--stages context`` takes the time of every call of the plans on one stream inside a replayed graph
(report/measured.py); the tables are in placement_report.py.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def calls_of(file: str) -> dict[str, Any]:
    """The calls of one module in order, as (symbol, kernel, microseconds in the network), and
    ``whole_us``, the time of an undisturbed run; ``failed`` with a reason where there are none."""
    import convoy
    from convoy.report import measured

    try:
        compiled = convoy.load(file)
        found = measured.measure(compiled)
    except Exception as err:  # the other modules still have their turn
        return {"failed": f"{type(err).__name__}: {err}"[-500:]}
    assert compiled.schedule is not None
    calls = [
        [op.symbol, op.kernel, round(span.duration_us, 3)]
        for op, span in zip(compiled.schedule.ops, found.spans, strict=True)
    ]
    return {"whole_us": round(found.makespan_us, 2), "calls": calls}


def main() -> None:
    """``placement_context.py GROUPS.json CORES``: for each group (``name``, ``runs``: file by
    label) write the calls by label to ``out``."""
    os.sched_setaffinity(0, json.loads(sys.argv[2]))
    for group in json.loads(Path(sys.argv[1]).read_text()):
        started = time.perf_counter()
        by_file = {file: calls_of(file) for file in dict.fromkeys(group["runs"].values())}
        found = {label: by_file[file] for label, file in group["runs"].items()}
        part = Path(group["out"]).with_suffix(".part")
        part.write_text(json.dumps(found, separators=(",", ":")))
        part.replace(group["out"])
        print(f"  {group['name']} in context: {time.perf_counter() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main()
