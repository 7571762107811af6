"""Records as rows of a table."""

from __future__ import annotations

import collections
import math
from collections.abc import Iterable, Sequence

from ..ir.workload import Workload
from ..records.record import Record
from ..report.tables import Column

COLUMNS = (
    Column("workload", "workload.key"),
    Column("backend", "candidate.backend"),
    Column("kernel", "candidate.kernel"),
    Column("kernel-only", "measurement.kernel_us", "us"),
    Column("end-to-end", "measurement.e2e_us", "us"),
    Column("GPU", "environment.gpu"),
    Column("driver", "environment.driver"),
    Column("time", "time"),
    Column("failure", "measurement.failure"),
)


def rows(records: Iterable[Record], contains: str = "") -> list[Record]:
    """Return records whose workload key contains a text, by GPU and workload, fastest first."""
    chosen = [record for record in records if contains in record.workload.key]
    return sorted(chosen, key=_order)


def _order(record: Record) -> tuple[str, Workload, float, str]:
    time = record.measurement.kernel_us
    return (
        record.environment.gpu,
        record.workload,
        math.inf if time is None else time,
        record.candidate.key,
    )


def as_json(record: Record) -> dict[str, object]:
    """Return a record as JSON, its environment included."""
    return {
        "workload": record.workload.to_json(),
        "candidate": record.candidate.to_json(),
        "measurement": record.measurement.to_json(),
        "environment": record.environment.to_json(),
        "time": record.time,
    }


def summary(records: Sequence[Record]) -> str:
    """Return the number of workloads, and of records of each GPU, as text."""
    by_gpu = collections.Counter(record.environment.gpu for record in records)
    counts = ", ".join(f"{gpu or 'no GPU'}: {count}" for gpu, count in by_gpu.most_common())
    workloads = len({record.workload.key for record in records})
    return f"{workloads} workloads" + (f"; {counts}" if counts else "")
