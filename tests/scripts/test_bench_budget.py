"""What a build chooses with hidden records, against what they say is best."""

from __future__ import annotations

import bench_budget as bench
from convoy import Device
from convoy.cost.nearest import Neighbours
from convoy.ir.candidate import Candidate
from convoy.ir.measurement import Measurement
from convoy.ir.workload import Workload
from convoy.records.record import HostSample

FIRST, SLOW, BEST = (Candidate("cudnn", f"eng{i}", priority=i) for i in range(3))
US = {FIRST: 8.0, SLOW: 16.0, BEST: 4.0}


def conv(size: int) -> Workload:
    return Workload("fprop", 1, size, size, 64, 64, 3, 3, padding=(1, 1, 1, 1))


def test_choices_of_each_rule() -> None:
    measured = {candidate: Measurement(kernel_us=us) for candidate, us in US.items()}
    times = {conv(size): measured for size in (14, 28)}
    samples = [
        HostSample("cudnn", c.kernel, 0, "", "", 3.0, 0.1, 6.0, 0.5, Device().name, us, None)
        for c, us in US.items()
    ]
    near = Neighbours([conv(56)], lambda _: samples, Device())
    none = Neighbours([], lambda _: [], Device())

    def ratios(known: Neighbours, measurements: int) -> dict[str, list[float]]:
        found = bench.compare(times, known, float(measurements), 1.0)
        return {rule: bench.ratios_to_best(times, chosen) for rule, chosen in found.items()}

    assert ratios(near, 2) == {
        "first guess": [2.0, 2.0], "near": [1.0, 1.0], "budget": [1.0, 1.0],
        "unknown GPU": [2.0, 2.0],
    }  # fmt: skip
    assert ratios(none, 2)["budget"] == ratios(none, 2)["near"] == [2.0, 2.0]
    assert sorted(ratios(none, 5)["unknown GPU"]) == [1.0, 2.0]
    assert ratios(none, 6)["unknown GPU"] == [1.0, 1.0]
    chosen = {conv(14): BEST, conv(28): SLOW}
    assert bench.times_over_best(times, chosen) == 2.5
    assert bench.summary([1.0, 4.0]) == [2.0, 4.0]
