"""Write docs/relay-conformance.md from the outcomes of the GPU tests.

    CONVOY_CONFORMANCE_OUT=rows.jsonl python -m pytest tests/gpu/conformance -m gpu
    python -m tests.gpu.conformance.page rows.jsonl --device "NVIDIA H200"

Several files are taken together, the last outcome of a case counts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from convoy.report import tables

from .test_conformance import CASES, NOT_COMPILED

PAGE = Path(__file__).resolve().parents[3] / "docs" / "relay-conformance.md"
COLUMNS = ("test", "case", "tolerance", "error", "ran on", "not on the library because")
INTRODUCTION = """# TVM's tests of CUTLASS and cuDNN, as convoy's own

What TVM 0.18 (Relay) and 0.27 (Relax) test of their CUTLASS and cuDNN integrations, with their
shapes, dtypes and tolerances: `tests/gpu/conformance`. Each case is built for one library and
TVM's own kernels, without measuring, and compared with a float64 evaluation on fresh random
inputs; where whole numbers have an exact result, on those too, at 1e-5.

*Error* is the largest deviation, as a share of what is allowed at that element:
`|y - y'| <= tolerance + tolerance * |y'|`, where a 16-bit result may also be one unit in the last
place away. Below 1 passes. A case that the library does not take says why, and is computed by
TVM's kernels, equally compared.
"""


def key(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["suite"], row["test"], row["name"]


def page(rows: list[dict[str, Any]], device: str) -> str:
    found = {key(row): row for row in rows}
    order = [(case.suite, case.test, case.name) for case in CASES]
    missing = [k for k in order if k not in found]
    passed = sum(found[k]["error"] <= 1 for k in order if k in found)
    on_library = Counter(found[k]["ran_on"] != "TVM" for k in order if k in found)
    lines = [INTRODUCTION, f"{passed} of {len(order)} cases pass on {device}: "]
    lines[-1] += f"{on_library[True]} on the library, {on_library[False]} on TVM's kernels."
    if missing:
        lines[-1] += f" {len(missing)} were not run there; all cases pass on the CPU."
    for suite in dict.fromkeys(case.suite for case in (*CASES, *NOT_COMPILED)):
        of_suite = [case for case in CASES if case.suite == suite]
        cells = [
            _cells(found[k]) if (k := (c.suite, c.test, c.name)) in found
            else (c.test, c.name, f"{c.tolerance:g}", "not run", "", c.declined)
            for c in of_suite
        ]  # fmt: skip
        left = [c for c in NOT_COMPILED if c.suite == suite]
        cells += [(c.test, c.name, "", "not run", "", c.declined) for c in left]
        lines += [f"\n## {suite}\n", tables.markdown(COLUMNS, cells)]
    return "\n".join(lines) + "\n"


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    error = f"{row['error']:.2g}"
    declined = row["declined"] if row["ran_on"] == "TVM" else ""
    shown = error if row["error"] <= 1 else f"**{error}**"
    return (row["test"], row["name"], f"{row['tolerance']:g}", shown, row["ran_on"], declined)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    made.add_argument("outcomes", nargs="+", type=Path)
    made.add_argument("--device", default="the GPU")
    made.add_argument("--out", type=Path, default=PAGE)
    return made


def main() -> int:
    args = parser().parse_args()
    rows = [json.loads(line) for path in args.outcomes for line in path.read_text().splitlines()]
    args.out.write_text(page(rows, args.device), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
