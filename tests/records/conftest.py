"""Records to test with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from convoy.ir.candidate import Candidate
from convoy.ir.measurement import Measurement
from convoy.ir.workload import Workload
from convoy.records.environment import Environment
from convoy.records.record import Record

H200 = Environment(
    "NVIDIA H200", 132, "580.95.05", "13.0", "9.19.1", "4.2.0", "abc", "0.1.0", cublas="13.1.0"
)


@pytest.fixture
def h200() -> Environment:
    return H200


@pytest.fixture
def make_record() -> Callable[..., Record]:
    def make(
        kernel: str = "eng1",
        kernel_us: float | None = 5.0,
        n: int = 8,
        backend: str = "cudnn",
        environment: Environment = H200,
        time: str = "2026-01-31T12:00:00Z",
        **measured: Any,
    ) -> Record:
        workload = Workload("fprop", n, 56, 56, 64, 64, 3, 3, padding=(1, 1, 1, 1))
        measurement = Measurement(kernel_us=kernel_us, samples=20, **measured)
        return Record(workload, Candidate(backend, kernel), measurement, environment, time)

    return make
