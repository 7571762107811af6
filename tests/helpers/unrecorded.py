"""Records of nothing."""

from __future__ import annotations

from convoy.cost.recorded import RecordedCost
from convoy.ir.device import Device
from convoy.records.environment import for_device
from convoy.records.store import RecordStore


class Unrecorded(RecordedCost):
    """A cost model over an empty store, which estimates nothing either."""

    def __init__(self) -> None:
        super().__init__(RecordStore([]), for_device(Device()))
