"""Timing of whole networks by an injected clock and runtime: order, counts, statistics."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from convoy.measure import network
from convoy.runtime.timing import time_bursts


def test_networks_take_turns_under_the_lock() -> None:
    log: list[str] = []

    @contextlib.contextmanager
    def lock() -> Iterator[None]:
        log.append("begin")
        yield
        log.append("end")

    def sampler(name: str, us: float) -> network.Sampler:
        def sample(count: int) -> list[float]:
            log.append(name)
            return [us] * count

        return sample

    samplers = [sampler("a", 3.0), sampler("b", 4.0)]
    first, second = network.time_networks(samplers, 2, 5, lock=lock)
    assert log == ["begin", "a", "b", "end"] * 2
    assert first.us == (3.0,) * 10 and second.us == (4.0,) * 10


def test_median_and_spread() -> None:
    samples = network.Samples(tuple(float(i) for i in range(11)))
    assert (samples.median_us, samples.spread_us) == (5.0, 4.0)


@pytest.mark.parametrize(
    ("make", "name", "arguments"),
    [(network.graph_replays, "measure.kernel_us", (1, 6)), (network.calls, "measure.e2e_us", (6,))],
)
def test_samplers_of_functions_ask_the_runtime(
    make: Callable[..., network.Sampler],
    name: str,
    arguments: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def lookup(found: str) -> Callable[..., list[float]]:
        return lambda *args: asked.append((found, *args)) or [1.5]

    monkeypatch.setattr(network, "function", lookup)
    assert make("main", ["x"], 2, budget_us=9.0)(6) == [1.5]
    assert asked == [(name, "main", ["x"], 2, *arguments, 9.0)]


class FakeSession:
    """Runs take 2 ms of a clock of its own; notes what is called."""

    input_info = (("x", (4, 8), "float32"), ("index", (3,), "int32"))

    def __init__(self) -> None:
        self.now, self.log, self.watch = 0.0, "", None
        self.inputs: dict[str, Any] = {}

    def clock(self) -> float:
        return self.now

    def run(self) -> None:
        self.log += "r"
        self.now += 2e-3
        for name in ("vm.builtin.x", "conv"):
            for before in (True, False):
                if self.watch is not None:
                    self.watch(None, name, before, None)

    def synchronize(self) -> None:
        self.log += "s"

    def observe(self, watch: Any) -> None:
        self.watch = watch

    def time(self, repeat: int, number: int) -> list[float]:
        return [2.0 / number] * repeat

    def set_input(self, name: str, value: Any) -> None:
        self.inputs[name] = value


def test_bursts_are_synchronized_once() -> None:
    session = FakeSession()
    assert time_bursts(session.run, session.synchronize, 2, 3, session.clock) == pytest.approx(
        [2000.0] * 2
    )
    assert session.log == "rrrsrrrs"


def test_a_burst_is_filled_with_runs() -> None:
    assert [network.runs_per_burst(us) for us in (10.0, 2000.0, 1e6)] == [100, 4, 1]
    session: Any = FakeSession()
    assert network.session_bursts(session)(2) == [250.0] * 2  # of 1 ms: eight fill a burst


def test_each_kernel_is_synchronized() -> None:
    session: Any = FakeSession()
    assert network.synchronized(session, session.clock)(2) == pytest.approx([2000.0] * 2)
    assert session.log == "r" + "rss" * 2, "one behind the kernel, one behind the run"
    assert session.watch is None


def test_observer_is_removed_where_a_run_fails() -> None:
    session: Any = FakeSession()
    ticks = itertools.count()

    def clock() -> float:
        if next(ticks):
            raise RuntimeError("lost")
        return 0.0

    with pytest.raises(RuntimeError, match="lost"):
        network.synchronized(session, clock)(1)
    assert session.watch is None


def test_inputs_are_random_but_for_indices() -> None:
    session: Any = FakeSession()
    network.fill_inputs(session)
    assert session.inputs["x"].dtype == "float32" and np.abs(session.inputs["x"]).max() > 0
    assert not session.inputs["index"].any()
