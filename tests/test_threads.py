"""Sixteen threads convert, place and build at once: each gets its own right result."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import convoy
from convoy import relay
from convoy.threads import one_at_a_time

TEXT = """#[version = "0.0.5"]
def @main(%x: Tensor[(1, 8, 8, 8), float32], %w: Tensor[(8, 8, 1, 1), float32]) {
  nn.relu(nn.conv2d(%x, %w, channels=8, kernel_size=[1, 1]))
}
"""
THREADS = 16


def _in_threads(work: Callable[[int], None]) -> list[str]:
    """Failures of ``work`` in threads that begin together."""
    failures: list[str] = []
    barrier = threading.Barrier(THREADS)

    def run(number: int) -> None:
        try:
            barrier.wait()
            work(number)
        except BaseException as err:
            failures.append(f"{type(err).__name__}: {err}")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def _network(number: int) -> object:
    weight = (number + 1) * np.eye(8, dtype="float32").reshape(8, 8, 1, 1)
    return relay.to_relax(relay.parse(TEXT), {"w": weight})


def test_networks_are_built_and_run() -> None:
    x = np.random.default_rng(0).random((1, 8, 8, 8), dtype="float32")

    def work(number: int) -> None:
        y = convoy.build(_network(number), "llvm").session()(x)[0]
        np.testing.assert_allclose(y, (number + 1) * x, rtol=1e-5)

    assert not _in_threads(work)


def test_networks_are_placed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CONVOY_RECORDS_DIR", str(tmp_path))  # reading the shipped ones takes time

    def work(number: int) -> None:
        plan = convoy.place(_network(number), backends=("cutlass", "tvm")).plan
        assert len(plan.choices) == 1

    assert not _in_threads(work)


def test_relay_builds() -> None:
    def work(number: int) -> None:
        module = relay.build(relay.parse(TEXT), "llvm", params={"w": np.zeros((8, 8, 1, 1), "f4")})
        assert module.get_lib() is not None

    assert not _in_threads(work)


def test_the_collector_is_off_meanwhile_and_then_as_it_was() -> None:
    on: list[bool] = []

    @one_at_a_time
    def compile_something(depth: int) -> None:
        if depth:
            compile_something(depth - 1)
        on.append(gc.isenabled())

    compile_something(1)
    assert on == [False, False]
    assert gc.isenabled()
    with pytest.raises(RecursionError):
        one_at_a_time(lambda: (_ for _ in ()).throw(RecursionError))()
    assert gc.isenabled()
    gc.disable()
    try:
        compile_something(0)
        assert not gc.isenabled()
    finally:
        gc.enable()
