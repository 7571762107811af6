"""The schedule of one function: streams, launch order, events and storage, as plain data."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from ..errors import CorruptArtefact

SCHEDULE_FORMAT = 1
#: Name of ``Op.occupancy`` in files.
_OCCUPANCY = "footprint"

#: In place of an op's index: the fork (as what an event records) or the join (as what waits).
ORIGIN = -1


@dataclass(frozen=True)
class Occupancy:
    """Part of the device that one launch occupies.

    ``blocks`` CTAs of ``threads`` threads and ``shared_bytes`` of shared memory each; ``waves`` is
    their number over those that are resident on all SMs at a time, so below 1 it is the fraction
    of the device that the launch occupies. An op of several kernels has the values of the one
    that occupies most.
    """

    blocks: int = 1
    threads: int = 1
    shared_bytes: int = 0
    waves: float = 1.0


@dataclass(frozen=True)
class Op:
    """One call: of an offloaded function, or of a kernel that TVM compiled.

    ``name`` is unique in the schedule, ``symbol`` the function called, ``kind`` "offloaded" or
    "native", ``kernel`` what runs it (a candidate's key; empty for native ops). ``source`` says
    where ``duration_us`` is from: "measured", "recorded" or "estimated". ``depends`` are the
    indices of the ops whose results it reads or whose storage of a result it overwrites.
    ``start_us`` and ``end_us`` are predicted, from the fork.
    """

    name: str
    symbol: str
    kind: str
    duration_us: float
    occupancy: Occupancy = Occupancy()
    stream: int = 0
    start_us: float = 0.0
    end_us: float = 0.0
    source: str = "estimated"
    kernel: str = ""
    depends: tuple[int, ...] = ()


@dataclass(frozen=True)
class Event:
    """Recorded behind op ``record`` on its stream, waited for in front of op ``wait`` on another.

    ORIGIN as ``record`` is the fork on the caller's stream, as ``wait`` the join on it.
    """

    record: int
    wait: int


@dataclass(frozen=True)
class Buffer:
    """A tensor inside the function and its place in the arena.

    ``offset`` and ``size`` are in bytes, ``writers`` and ``readers`` indices of ops. Views of the
    same storage count as one buffer.
    """

    name: str
    offset: int
    size: int
    writers: tuple[int, ...] = ()
    readers: tuple[int, ...] = ()


@dataclass(frozen=True)
class MemoryPlan:
    """All buffers of a function in one arena of ``peak_bytes``.

    ``single_stream_bytes`` is the arena of the same ops in the same order on one stream,
    ``total_bytes`` the sum of all buffers, which is what no reuse at all would take.
    """

    buffers: tuple[Buffer, ...] = ()
    peak_bytes: int = 0
    single_stream_bytes: int = 0
    total_bytes: int = 0


@dataclass(frozen=True)
class Trial:
    """Measured times of a whole function on one stream and on several, in microseconds (medians
    of interleaved runs); spreads are half the distance from the 10th to the 90th percentile."""

    single_us: float
    multi_us: float
    single_spread_us: float = 0.0
    multi_spread_us: float = 0.0

    @property
    def faster(self) -> bool:
        """Whether several streams win by more than the spread of the two."""
        return self.single_us - self.multi_us > max(self.single_spread_us, self.multi_spread_us)


@dataclass(frozen=True)
class Schedule:
    """Ops in launch order with their streams, the events between them, and the storage.

    Stream 0 is the caller's. ``makespan_us`` is predicted for this schedule, ``single_us`` for
    the same ops on one stream. ``decided_by`` is "measured", "simulated" or "requested"; ``trial``
    holds the times of the first, ``note`` says in words why it is as it is.
    """

    ops: tuple[Op, ...]
    events: tuple[Event, ...] = ()
    memory: MemoryPlan = MemoryPlan()
    makespan_us: float = 0.0
    single_us: float = 0.0
    decided_by: str = "simulated"
    trial: Trial | None = None
    note: str = ""

    @property
    def streams(self) -> int:
        """How many streams are used, the caller's included."""
        return 1 + max((op.stream for op in self.ops), default=0)

    @property
    def predicted_speedup(self) -> float:
        """Predicted time on one stream over that of this schedule."""
        return self.single_us / self.makespan_us if self.makespan_us else 1.0

    def __str__(self) -> str:
        """One line: streams, events, times and memory."""
        arena, alone = self.memory.peak_bytes / 1e6, self.memory.single_stream_bytes / 1e6
        return (
            f"{self.streams} stream{'s' if self.streams > 1 else ''} ({self.decided_by}"
            f"{f': {self.note}' if self.note else ''}), {len(self.ops)} kernels, "
            f"{len(self.events)} events; predicted {self.makespan_us:.1f} us, one after the other "
            f"{self.single_us:.1f} us; arena {arena:.1f} MB, on one stream {alone:.1f} MB"
        )

    def on_stream(self, stream: int) -> list[int]:
        """Indices of the ops of a stream, in launch order."""
        return [i for i, op in enumerate(self.ops) if op.stream == stream]

    def to_json(self) -> dict[str, Any]:
        data = dataclasses.asdict(self)
        for op in data["ops"]:
            op[_OCCUPANCY] = op.pop("occupancy")
        return {"format": SCHEDULE_FORMAT, **data}

    def dumps(self) -> str:
        """The schedule as JSON text."""
        return json.dumps(self.to_json(), sort_keys=True)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Schedule:
        """Inverse of :meth:`to_json`; raises CorruptArtefact for anything else."""
        try:
            data = dict(data)
            if (found := data.pop("format")) != SCHEDULE_FORMAT:
                raise CorruptArtefact(f"a schedule of format {found}", f"format {SCHEDULE_FORMAT}")
            memory = dict(data.pop("memory"))
            trial = data.pop("trial")
            return cls(
                ops=tuple(_op(op) for op in data.pop("ops")),
                events=tuple(Event(**event) for event in data.pop("events")),
                memory=MemoryPlan(
                    buffers=tuple(_buffer(buffer) for buffer in memory.pop("buffers")), **memory
                ),
                trial=Trial(**trial) if trial else None,
                **data,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as err:
            raise CorruptArtefact(
                f"a schedule without its fields ({err!r})", "the JSON that Schedule.dumps writes"
            ) from None

    @classmethod
    def loads(cls, text: str) -> Schedule:
        """Inverse of :meth:`dumps`."""
        try:
            data = json.loads(text)
        except json.JSONDecodeError as err:
            raise CorruptArtefact(
                f"text that is no JSON ({err})", "a schedule as Schedule.dumps writes it"
            ) from None
        return cls.from_json(data)


def _op(data: dict[str, Any]) -> Op:
    known = dict(data)
    occupancy = Occupancy(**known.pop(_OCCUPANCY))
    return Op(**{**known, "occupancy": occupancy, "depends": tuple(data["depends"])})


def _buffer(data: dict[str, Any]) -> Buffer:
    return Buffer(**{**data, "writers": tuple(data["writers"]), "readers": tuple(data["readers"])})
