"""Tables of accuracy: wrong candidates, and reports that were cut off."""

from __future__ import annotations

import json

import accuracy_table


def line(candidate: str, error: float | None, workload: str = "w") -> dict:
    return {
        "op": "dgrad", "precision": "float16", "workload": workload, "candidate": candidate,
        "error": error, "limit": 1e-3,
    }  # fmt: skip


def test_summary_counts_by_backend(tmp_path) -> None:
    report = tmp_path / "report.jsonl"
    found = [
        line("cudnn:a", 2e-4), line("cudnn:b", 2e-3), line("cudnn:a", 4e-4, "v"),
        line("hopper:a", None), line("hopper:a", 3e-4),
    ]  # fmt: skip
    report.write_text("\n".join(map(json.dumps, found)) + '\n{"op": "dgr')
    rows = accuracy_table.summary(accuracy_table.read([report]))
    assert [(r["backend"], r["problems"], r["candidates"], r["wrong"]) for r in rows] == [
        ("cudnn", 2, 3, 1),
        ("hopper", 1, 1, 0),  # of several lines of a candidate the last counts
    ]
    assert rows[0]["worst"] == 4e-4
    assert "| dgrad | float16 | cudnn |" in accuracy_table.table(rows)


def test_candidates_that_failed_are_wrong() -> None:
    rows = accuracy_table.summary([line("cutlass:a", None)])
    assert rows[0]["wrong"] == 1
    assert rows[0]["worst"] is None
    assert "| - |" in accuracy_table.table(rows)
