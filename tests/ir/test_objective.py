"""Costs of measurements by objective: warm and cold kernels, host time, synchronized calls."""

from __future__ import annotations

import pytest

from convoy.ir import objective as objectives
from convoy.ir.measurement import Measurement
from convoy.ir.objective import COLD_SHARE, STREAM_GAP_US

WARM = Measurement(kernel_us=4.0, enqueue_us=2.0, e2e_us=12.0)
COLD = Measurement(kernel_us=4.0, cold_us=6.0, enqueue_us=2.0, e2e_us=12.0)
BEYOND = 2.0 * COLD_SHARE


def test_a_share_of_the_cold_time_counts_under_every_objective() -> None:
    assert 0.0 < COLD_SHARE < 1.0
    for objective, warm in (("graph", 4.0), ("stream", 4.0 + STREAM_GAP_US), ("sync", 12.0)):
        assert objectives.total([WARM], objective) == warm
        assert objectives.total([COLD], objective) == pytest.approx(warm + BEYOND)
        assert objectives.own_cost(COLD, objective)[0] == pytest.approx(warm + BEYOND)


def test_host_time_has_no_cache() -> None:
    busy = Measurement(kernel_us=1.0, cold_us=3.0, enqueue_us=9.0, e2e_us=15.0)
    assert objectives.total([busy, busy], "stream") == 18.0


def test_a_cold_time_below_the_warm_one_is_noise() -> None:
    noisy = Measurement(kernel_us=4.0, cold_us=3.9, e2e_us=12.0)
    assert objectives.device_us(noisy) == 4.0 == objectives.device_us(WARM)
    assert objectives.own_cost(noisy, "sync")[0] == 12.0


def test_nothing_takes_no_time() -> None:
    view = Measurement(kernel_us=0.0, enqueue_us=0.0, e2e_us=0.0)
    for objective in objectives.OBJECTIVES:
        assert objectives.total([view] * 3, objective) == 0.0
