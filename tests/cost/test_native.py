"""Times of TVM's kernels, alone and in chains of programmatic launches."""

from __future__ import annotations

import dataclasses

import pytest

from convoy import programmatic
from convoy.cost.native import FREE, native_measurement
from convoy.ir.device import Device
from convoy.ir.objective import saved_us, starts_successor_early


def test_lets_its_successor_start_early_and_saves_nothing_itself() -> None:
    found = native_measurement(2.0, Device())
    assert starts_successor_early(found) and saved_us(found) == 0.0


@pytest.mark.parametrize(("arch", "switch"), [(80, "1"), (90, "0")])
def test_other_gpus_and_the_switch(arch, switch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(programmatic.VARIABLE, switch)
    assert not starts_successor_early(
        native_measurement(2.0, dataclasses.replace(Device(), arch=arch))
    )


def test_a_view_starts_nothing() -> None:
    assert native_measurement(0.0, Device()) == FREE
    assert not starts_successor_early(FREE)
