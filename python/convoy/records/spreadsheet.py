"""Write records as a table for spreadsheets."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterable
from typing import TextIO

from .environment import LIBRARIES
from .record import Record

WORKLOAD_COLUMNS = ["op", "n", "h", "w", "c", "k", "r", "s", "p", "q", "groups", "dtype"]
MEASUREMENT_COLUMNS = [
    "kernel_us",
    "kernel_spread_us",
    "cold_us",
    "enqueue_us",
    "e2e_us",
    "samples",
    "error",
    "failure",
]


def export_csv(records: Iterable[Record], stream: TextIO) -> int:
    """Write one row for each record with all that spreadsheets ask of it; returns the count."""
    environment = ["gpu", "sm_count", "driver", *LIBRARIES, "convoy"]
    columns = ["workload", *WORKLOAD_COLUMNS, "stride", "padding", "dilation", "epilogue"]
    columns += ["backend", "kernel", "workspace", "config", *MEASUREMENT_COLUMNS]
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*columns, *environment, "time"])
    count = 0
    for record in records:
        w, c = record.workload, record.candidate
        measured = dataclasses.asdict(record.measurement)
        row = [w.key, *(getattr(w, name) for name in WORKLOAD_COLUMNS)]
        row += ["x".join(map(str, sizes)) for sizes in (w.stride, w.padding, w.dilation)]
        row += [w.epilogue.name, c.backend, c.kernel, c.workspace, c.config]
        row += ["" if measured[name] is None else measured[name] for name in MEASUREMENT_COLUMNS]
        row += [getattr(record.environment, name) for name in environment]
        writer.writerow([*row, record.time])
        count += 1
    return count
