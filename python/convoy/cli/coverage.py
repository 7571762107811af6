"""Coverage of workload lists by records, for each backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..backends.base import Backend
from ..errors import NoGpu
from ..ir.defaults import LIBRARIES
from ..ir.device import Device
from ..ir.workload import Workload
from ..records import environment as environments
from ..records.environment import Environment
from ..records.store import RecordStore
from ..report.tables import Column


@dataclass(frozen=True)
class Coverage:
    """The workloads of one list at one batch size.

    Attributes:
        name: The list.
        batch: The batch size.
        workloads: Number of workloads.
        backends: (name, workloads with a measurement, workloads accepted by its rules) of each
            backend; it may accept a workload of which every candidate fails.
        missing: Workloads without any measurement.
    """

    name: str
    batch: int
    workloads: int
    backends: tuple[tuple[str, int, int], ...]
    missing: tuple[Workload, ...]

    @property
    def with_records(self) -> int:
        return self.workloads - len(self.missing)

    @property
    def by_backend(self) -> str:
        """Text such as ``cudnn 30/30, cutlass 39/41``."""
        return ", ".join(f"{name} {have}/{of}" for name, have, of in self.backends)

    def to_json(self) -> dict[str, object]:
        return {
            "list": self.name,
            "batch": self.batch,
            "workloads": self.workloads,
            "with_records": self.with_records,
            "backends": {n: {"with_records": h, "accepted": a} for n, h, a in self.backends},
            "missing": [workload.key for workload in self.missing],
        }


COLUMNS = (
    Column("list", "name"),
    Column("batch", "batch"),
    Column("workloads", "workloads"),
    Column("with records", "with_records"),
    Column("of each backend, of those it accepts", "by_backend"),
)


def coverage(
    name: str,
    workloads: Sequence[Workload],
    store: RecordStore,
    environment: Environment,
    backends: Sequence[Backend],
    device: Device,
) -> list[Coverage]:
    """Return a row for each batch size in ``workloads``.

    Records of failures do not count, nor do those that a placement in ``environment`` would not
    use.
    """
    rows = []
    for batch in sorted({workload.n for workload in workloads}):
        mine = [workload for workload in workloads if workload.n == batch]
        found = {
            w: {r.candidate.backend for r in store.lookup(w, environment) if r.measurement.ok}
            for w in mine
        }
        counts = []
        for backend in backends:
            accepted = [w for w in mine if backend.accepts(w, device) is None]
            have = sum(backend.name in found[w] for w in accepted)
            counts.append((backend.name, have, len(accepted)))
        missing = tuple(w for w in mine if not found[w])
        rows.append(Coverage(name, batch, len(mine), tuple(counts), missing))
    return rows


def of_lists(lists: Mapping[str, Sequence[Workload]], store: RecordStore) -> list[Coverage]:
    """Return the rows of several lists by name, for all backends that convoy measures.

    The GPU is the one that is present, otherwise an H200.
    """
    from ..backends import registry
    from ..runtime import current_device

    try:
        device = current_device()
        environment = environments.current()
    except NoGpu:
        device = Device()
        environment = environments.for_device(device)
    backends = [registry.get(name) for name in LIBRARIES]
    return [
        row
        for name, workloads in lists.items()
        for row in coverage(name, workloads, store, environment, backends, device)
    ]
