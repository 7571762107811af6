"""Where a placement's figures come from: records, and measurements that go into them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..backends.base import Backend, Candidate, Device
from .cost import CostModel, MeasuredCost, Progress, RecordedCost

if TYPE_CHECKING:
    from ..measure.measurement import Measurement
    from ..workload import Workload


def cost_model(
    backends: Sequence[Backend],
    device: Device,
    records: str | os.PathLike[str] | None,
    measure: bool,
    most_measured: int | None = None,
    progress: Progress | None = None,
    proceed: Callable[[], bool] | None = None,
) -> tuple[CostModel, str]:
    """The cost model of a placement, and the id of the environment that it speaks of.

    Shipped records and the user's own (``records``, default: in the data folder of the user); with
    ``measure`` what they lack is measured and added to the user's own (``most_measured`` and
    ``proceed``: see MeasuredCost).
    """
    from .. import paths
    from ..measure import environment as environments
    from ..measure.record import Record
    from ..measure.records import RecordStore

    own = Path(records) if records else paths.user_records_file()
    store = RecordStore([paths.records_dir()], write_to=own)
    if not measure:
        known = environments.for_device(device)
        return RecordedCost(store, known), known.id
    here = environments.current()
    by_name = {backend.name: backend for backend in backends}

    def save(workload: Workload, candidate: Candidate, figure: Measurement) -> None:
        backend = by_name[candidate.backend]
        narrowed = here.narrowed(backend.libraries, backend.kernel_source(candidate))
        store.append(Record(workload, candidate, figure, narrowed))

    recorded = RecordedCost(store, here)
    model = MeasuredCost(backends, device, recorded, save, progress, most_measured, proceed)
    return model, here.id
