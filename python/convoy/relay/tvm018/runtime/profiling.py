"""`tvm.runtime.profiling`: the times of the kernels of a run."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

#: The unit of each column in the JSON of TVM 0.18.
_UNITS = {"Name": "string", "Duration (us)": "microseconds", "Percent": "percent", "Count": "count"}


class Report:
    """The calls of a run, in their order.

    Attributes:
        calls: A dict for each call, with `Name`, `Duration (us)`, `Percent` and `Count`.
        device_metrics: The run as a whole, by device.
        configuration: What ran.
    """

    def __init__(
        self,
        calls: Sequence[Mapping[str, Any]],
        device_metrics: Mapping[str, Mapping[str, Any]],
        configuration: Mapping[str, Any],
    ) -> None:
        self.calls = [dict(call) for call in calls]
        self.device_metrics = {name: dict(found) for name, found in device_metrics.items()}
        self.configuration = dict(configuration)

    def csv(self) -> str:
        """Return a table of comma-separated values."""
        text = io.StringIO()
        writer = csv.DictWriter(text, list(_UNITS), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.calls)
        return text.getvalue()

    def json(self) -> str:
        """Return all as JSON, each value with its unit."""
        return json.dumps(
            {
                "calls": [_with_units(call) for call in self.calls],
                "device_metrics": {n: _with_units(m) for n, m in self.device_metrics.items()},
                "configuration": self.configuration,
            }
        )

    def table(self, sort: bool = True, aggregate: bool = True, col_sums: bool = True) -> str:
        """Return a table for a reader.

        Args:
            sort: Put the longest first.
            aggregate: Add up calls of one name.
            col_sums: End with the sums.
        """
        rows = _added_up(self.calls) if aggregate else [dict(call) for call in self.calls]
        if sort:
            rows.sort(key=lambda row: -row["Duration (us)"])
        if col_sums:
            rows += [{"Name": "Sum", **_sums(rows)}]
            rows += [{"Name": f"Total ({n})", **m} for n, m in self.device_metrics.items()]
        width = max([len(row["Name"]) for row in rows], default=4)
        lines = [f"{'Name':{width}} {'Duration (us)':>14} {'Percent':>8} {'Count':>6}"]
        lines += [
            f"{row['Name']:{width}} {row['Duration (us)']:14.2f} {row['Percent']:8.2f}"
            f" {row['Count']:6}"
            for row in rows
        ]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.table()


def _with_units(row: Mapping[str, Any]) -> dict[str, Any]:
    return {column: {_UNITS[column]: value} for column, value in row.items()}


def _added_up(calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for call in calls:
        groups.setdefault(call["Name"], []).append(call)
    return [{"Name": name, **_sums(group)} for name, group in groups.items()]


def _sums(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    columns = ("Duration (us)", "Percent", "Count")
    return {column: sum(row[column] for row in rows) for column in columns}
