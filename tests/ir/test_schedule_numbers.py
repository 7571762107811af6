"""A schedule from a file names ops that there are, in launch order."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from convoy.errors import CorruptArtefact
from convoy.ir.schedule import Schedule
from convoy.ir.schedule_parts import ORIGIN, Buffer, Event, MemoryPlan, Op

OPS = (
    Op("a", "convoy_0", "native", 2.0),
    Op("b", "convoy_1", "native", 2.0, stream=1, depends=(0,)),
    Op("c", "convoy_2", "native", 2.0, depends=(0, 1)),
)
GOOD = Schedule(
    OPS,
    (Event(0, 1), Event(1, 2), Event(ORIGIN, 1), Event(2, ORIGIN)),
    MemoryPlan((Buffer("x", 0, 256, (0,), (1, 2)),), 256, 256, 256),
)


def test_a_schedule_comes_back() -> None:
    assert Schedule.from_json(GOOD.to_json()) == GOOD


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("ops", 1, "depends"), [1]),
        (("ops", 0, "depends"), [2]),
        (("ops", 2, "depends"), [3]),
        (("events", 0, "record"), 3),
        (("events", 0, "wait"), 3),
        (("events", 1, "record"), 2),
        (("memory", "buffers", 0, "writers"), [3]),
        (("memory", "buffers", 0, "readers"), [7]),
    ],
)
def test_numbers_outside_of_it_are_refused(place: tuple[Any, ...], value: object) -> None:
    data = copy.deepcopy(GOOD.to_json())
    at: Any = data
    for key in place[:-1]:
        at[key] = list(at[key]) if isinstance(at[key], tuple) else at[key]
        at = at[key]
    at[place[-1]] = value
    with pytest.raises(CorruptArtefact, match="op"):
        Schedule.from_json(data)
