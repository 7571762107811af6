"""The timing routine of whole networks, on a clock that moves when a system runs."""

from __future__ import annotations

import pytest

from harness.timing import Run, Timing, half_spread, measure_in_turns


class Clock:
    """Seconds; a run of a system enqueues work and a synchronization waits for it."""

    def __init__(self) -> None:
        self.now, self.pending = 0.0, 0.0
        self.calls: list[str] = []

    def __call__(self) -> float:
        return self.now

    def run(self, name: str, seconds: float) -> Run:
        def call() -> None:
            self.calls.append(name)
            self.pending += seconds

        def synchronize() -> None:
            self.now, self.pending = self.now + self.pending + 1e-5, 0.0

        return Run(call, synchronize)


def test_throughput_is_the_mean_of_calls_back_to_back_and_latency_that_of_one() -> None:
    clock = Clock()
    found = measure_in_turns({"a": clock.run("a", 1e-3)}, seconds=1.0, clock=clock)["a"]
    row = found.to_json()
    assert row["ms"] == pytest.approx(1.0 + 0.01 / 19)  # 10 us to synchronize 19 calls
    assert row["latency_ms"] == pytest.approx(1.01)
    assert row["spread_ms"] == pytest.approx(0.0, abs=1e-9)
    assert len(found.rounds) == 6 and row["samples"] == 6 * 8
    assert clock.now == pytest.approx(1.0, rel=0.1), "as long as it was told"


def test_systems_take_turns_and_every_other_round_goes_backwards() -> None:
    clock = Clock()
    runs = {name: clock.run(name, seconds) for name, seconds in (("a", 1e-3), ("b", 4e-3))}
    measure_in_turns(runs, rounds=4, clock=clock)
    turns = [n for i, n in enumerate(clock.calls) if i == 0 or clock.calls[i - 1] != n]
    assert turns == ["a", "b", "a", "b", "a", "b", "a"]  # the first two to warm up


def test_a_slow_system_is_sampled_in_every_round() -> None:
    clock = Clock()
    found = measure_in_turns({"slow": clock.run("slow", 5.0)}, seconds=1.0, clock=clock)["slow"]
    assert [len(samples) for samples in found.rounds] == [2] * 6


def test_even_rounds_choose_and_odd_ones_are_reported() -> None:
    timing = Timing([[1.0, 1.2], [5.0, 5.0], [1.0, 1.2], [7.0, 7.0]], [1.0])
    assert timing.halves() == {
        "even_ms": pytest.approx(1.1), "even_spread_ms": pytest.approx(0.1), "odd_ms": 6.0
    }  # fmt: skip


def test_spread_leaves_out_the_tenths_at_both_ends() -> None:
    assert half_spread([1.0] + [2.0] * 9 + [9.0]) == 0.0
    assert half_spread([float(i) for i in range(11)]) == 4.0
