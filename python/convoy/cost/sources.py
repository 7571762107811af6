"""Make the cost model of a placement."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from .. import paths
from ..backends.base import Backend
from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.workload import Workload
from ..records import environment as environments
from ..records.environment import Environment
from ..records.record import Record
from ..records.store import RecordStore
from .host import HostTimes
from .local_measurements import Save
from .measured import MeasuredCost
from .model import CostModel
from .recorded import RecordedCost

#: Names of cost models.
COSTS = ("measured", "recorded", "predicted")


def cost_model(
    costs: str | CostModel | None,
    backends: Sequence[Backend],
    device: Device,
    records: str | os.PathLike[str] | None = None,
    *,
    measure: bool = False,
    most_measured: int | None = None,
    budget: float | None = None,
    host_times: bool = True,
) -> tuple[CostModel, str]:
    """Return the cost model of a placement, and the id of the environment that it speaks of.

    Args:
        costs: A cost model, or one of COSTS; None is the same as "measured". All of these read the
            shipped records and the user's own. "predicted" and "measured" estimate what these lack;
            "measured" measures it instead if ``measure`` is set.
        backends: Backends whose candidates are measured.
        device: The GPU that the network will run on.
        records: File of the user's own records (default: in the user's data folder), to which
            measurements are added.
        measure: Whether to measure; ``most_measured`` and ``budget`` as for :class:`MeasuredCost`.
        host_times: Whether to rescale those of records to this CPU, which takes measurements of
            its own. What is replayed as a CUDA graph does not depend on them.
    """
    if costs is not None and not isinstance(costs, str):
        return costs, ""
    measure = measure and costs in (None, "measured")
    own = Path(records) if records else paths.user_records_file()
    store = RecordStore([paths.records_dir()], write_to=own)
    environment = environments.current() if measure else environments.for_device(device)
    hosts = HostTimes(environment.boot if measure else "") if host_times else None
    recorded = RecordedCost(store, environment, hosts, None if costs == "recorded" else device)
    if costs in ("recorded", "predicted"):
        return recorded, ""
    if not measure:
        return recorded, environment.id
    save = _saving(store, environment, backends)
    model = MeasuredCost(backends, device, recorded, save, most_measured, budget)
    return model, environment.id


def _saving(store: RecordStore, here: Environment, backends: Sequence[Backend]) -> Save:
    """Return the function that adds a measurement of this machine to the user's records."""
    by_name = {backend.name: backend for backend in backends}

    def save(workload: Workload, candidate: Candidate, measurement: Measurement) -> None:
        backend = by_name[candidate.backend]
        narrowed = here.narrowed(backend.libraries, backend.kernel_source(candidate))
        store.append(Record(workload, candidate, measurement, narrowed))

    return save
