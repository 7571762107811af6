"""Rescale host times that were recorded on another host to this CPU.

Kernel times depend on the GPU; the time to enqueue a kernel or to wait for it depends on the CPU.
Two machines with the same GPU differ by half in host times, by a different factor for each library.
Therefore a few recorded candidates of each backend are measured again, and the median ratio is
applied to all records of that backend and host. Only records made since this machine was booted
need no ratio, because a CPU's name does not identify a machine.

If there are many records of one kind of kernels, their median is used for each of them
(:mod:`.usual_host_times`). If there are many from this machine, their median is also used for all
other records of the kind.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import ConvoyError
from ..ir.candidate import Candidate
from ..ir.measurement import Measurement
from ..ir.workload import Workload
from ..records.record import Record
from .usual_host_times import Kind, Usual

#: Candidates of each backend that are measured again.
SAMPLES = 5
#: Ratios nearer to one than this are taken for one: measurements differ that much on one host.
LEAST = 0.05

#: (backend, host that measured) of records whose host times count by one ratio.
Origin = tuple[str, str]
Again = Callable[[Workload, Candidate], Measurement]
Ready = Callable[[Candidate], bool]
Prepare = Callable[[Sequence[tuple[Workload, Candidate]]], object]


@dataclass(frozen=True)
class Ratio:
    """Host times on this machine over the recorded ones: of ``enqueue_us``, and of ``e2e_us``
    without the kernel. ``samples`` is the number of candidates in the medians."""

    enqueue: float = 1.0
    wait: float = 1.0
    samples: int = 0

    def apply(self, measurement: Measurement) -> Measurement:
        """A recorded measurement as it would be here."""
        changes: dict[str, float] = {}
        if measurement.enqueue_us is not None:
            changes["enqueue_us"] = measurement.enqueue_us * self.enqueue
            changes["enqueue_spread_us"] = (measurement.enqueue_spread_us or 0.0) * self.enqueue
        if measurement.e2e_us is not None and measurement.kernel_us is not None:
            wait = max(0.0, measurement.e2e_us - measurement.kernel_us)
            changes["e2e_us"] = measurement.kernel_us + wait * self.wait
            changes["e2e_spread_us"] = (measurement.e2e_spread_us or 0.0) * self.wait
        return dataclasses.replace(measurement, **changes)  # type: ignore[arg-type]


@dataclass
class HostTimes:
    """Ratios by origin. Records of this machine since its start (``boot``), and those of an origin
    without a ratio, stay as they are."""

    boot: str = ""
    ratios: dict[Origin, Ratio] = field(default_factory=dict)
    usual: Mapping[Kind, Usual] = field(default_factory=dict)

    def measurement(self, record: Record) -> Measurement:
        """The measurement of a record with host times of this machine: the usual ones of its kind
        here, or else those of its kind there by the ratio of the two machines."""
        if (usual := self._usual_here(record)) is not None:
            return usual.apply(record.measurement)
        ratio = None if self._here(record) else self.ratios.get(origin(record))
        recorded = self.recorded(record)
        return recorded if ratio is None else ratio.apply(recorded)

    def recorded(self, record: Record) -> Measurement:
        """The measurement of a record with the usual host times of its kind there."""
        usual = self.usual.get(Kind.of(record))
        return record.measurement if usual is None else usual.apply(record.measurement)

    def _usual_here(self, record: Record) -> Usual | None:
        """Usual time of the same kind of launch on this machine since it was booted."""
        kind = Kind.of(record)
        return self._usual_of_boot.get((kind.backend, kind.family)) if self.boot else None

    @functools.cached_property
    def _usual_of_boot(self) -> dict[tuple[str, str], Usual]:
        """Usual times on this machine by backend and family."""
        known = self.usual.items()
        return {(k.backend, k.family): usual for k, usual in known if k.boot == self.boot}

    def _uncalibrated(self, records: Iterable[Record]) -> dict[Origin, list[Record]]:
        """Records of other machines that have no ratio yet and could give one, by origin."""
        found: dict[Origin, list[Record]] = {}
        for record in records:
            own, measurement = origin(record), record.measurement
            if self._here(record) or own in self.ratios:
                continue
            if _has_host_times(measurement):
                found.setdefault(own, []).append(record)
        return found

    def _here(self, record: Record) -> bool:
        return bool(self.boot) and record.environment.boot == self.boot

    def calibrate(
        self,
        records: Iterable[Record],
        again: Again,
        ready: Ready = lambda _: True,
        prepare: Prepare = lambda _: None,
    ) -> None:
        """Find the ratios of all origins of these records that have none. ``again`` measures a
        candidate here; what fails is left out. Candidates that are ``ready`` to run come first;
        of an origin without any, ``prepare`` is told of those to come, all at once."""
        samples = {}
        for own, known in self._uncalibrated(records).items():
            samples[own] = chosen([r for r in known if ready(r.candidate)] or known)
        with contextlib.suppress(ConvoyError):  # a failed build fails again below
            prepare([(r.workload, r.candidate) for known in samples.values() for r in known])
        for own, known in samples.items():
            pairs = []
            for record in known:
                try:
                    measurement = again(record.workload, record.candidate)
                except ConvoyError:
                    continue
                if _has_host_times(measurement) and measurement.kernel_us:
                    pairs.append((self.recorded(record), measurement))
            self.ratios[own] = ratio_of(pairs)


def _has_host_times(measurement: Measurement) -> bool:
    return bool(measurement.ok and measurement.enqueue_us and measurement.e2e_us)


def origin(record: Record) -> Origin:
    return record.candidate.backend, record.environment.host


def chosen(records: Sequence[Record]) -> list[Record]:
    """Records that stand for all: of the kernel that most of them use, so that little has to be
    compiled, and of workloads spread evenly over the names. The same for the same records."""
    uses = Counter(record.candidate.kernel.split(".")[0] for record in records)
    common = max(sorted(uses), key=uses.__getitem__)
    of_it = [r for r in records if r.candidate.kernel.split(".")[0] == common]
    by_workload = {r.workload.key: r for r in sorted(of_it, key=lambda r: r.candidate.kernel)}
    keys = sorted(by_workload)
    if len(keys) > SAMPLES:
        keys = [keys[round(i * (len(keys) - 1) / (SAMPLES - 1))] for i in range(SAMPLES)]
    return [by_workload[key] for key in keys]


def ratio_of(pairs: Sequence[tuple[Measurement, Measurement]]) -> Ratio:
    """The ratio of (recorded, measured here) pairs; without samples if there are none."""
    if not pairs:
        return Ratio()

    def median(value: Callable[[Measurement], float]) -> float:
        ratio = statistics.median(value(here) / value(there) for there, here in pairs)
        return 1.0 if abs(ratio - 1.0) < LEAST else ratio

    def wait(measurement: Measurement) -> float:
        return max(0.1, (measurement.e2e_us or 0.0) - (measurement.kernel_us or 0.0))

    return Ratio(median(lambda f: f.enqueue_us or 1.0), median(wait), len(pairs))
