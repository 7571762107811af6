"""The schedule of one function: streams, launch order, events and storage, as plain data."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from ..errors import CorruptArtefact
from . import fields as checks
from .measurement import Measurement
from .objective import device_us, saved_us

SCHEDULE_FORMAT = 1

#: In place of an op's index: the fork (for ``record``) or the join (for ``wait``).
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
    """A call of an offloaded function or of a kernel compiled by TVM.

    ``name`` is unique in the schedule, ``symbol`` the function called, ``kind`` "offloaded" or
    "native", ``kernel`` the key of its candidate (empty for native ops). ``source`` is the origin
    of ``duration_us``: "measured", "recorded", "estimated" or "unknown". ``depends`` are the
    indices of the ops whose results it reads, or whose storage it overwrites.
    ``start_us`` and ``end_us`` are predicted, from the fork.

    ``early`` tells whether its kernel lets the next one on its stream start before it has ended,
    ``chained_us`` is its duration behind such a kernel (None if it starts only when its predecessor
    has ended), and ``linked`` whether it is behind one in the schedule.
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
    early: bool = False
    chained_us: float | None = None
    linked: bool = False

    def timed(self, measurement: Measurement, added_us: float = 0.0) -> Op:
        """The op with a kernel of these times, and ``added_us`` for copies behind it."""
        us = device_us(measurement) + added_us
        early = measurement.chained_us is not None
        chained_us = us - saved_us(measurement) if early else None
        return dataclasses.replace(self, duration_us=us, early=early, chained_us=chained_us)

    @property
    def scheduled_us(self) -> float:
        """Duration at its place in the schedule, on a device of its own."""
        if self.linked and self.chained_us is not None:
            return self.chained_us
        return self.duration_us


@dataclass(frozen=True)
class Event:
    """Recorded after op ``record`` on its stream, waited for before op ``wait`` on another one.

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
    ``total_bytes`` the sum of all buffers, as without any reuse.
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
        """Whether several streams are faster by more than both spreads."""
        return self.single_us - self.multi_us > max(self.single_spread_us, self.multi_spread_us)


@dataclass(frozen=True)
class Total:
    """Predicted time of a network: of all its kernels, on their streams.

    Attributes:
        us: Microseconds from the first kernel's start to the last one's end.
        kernels: Number of kernels.
        estimated: Number of kernels whose time is an estimate.
        untimed: Number of kernels without a time, which count as zero.
    """

    us: float
    kernels: int
    estimated: int = 0
    untimed: int = 0

    def __str__(self) -> str:
        remarks = [f"{self.estimated} estimated"] * bool(self.estimated)
        remarks += [f"{self.untimed} without a time"] * bool(self.untimed)
        return f"{self.us:.0f} us for {self.kernels} kernels" + (
            f" ({', '.join(remarks)})" if remarks else ""
        )


@dataclass(frozen=True)
class Schedule:
    """Streams, launch order, events and memory of a network.

    Attributes:
        ops: Ops in launch order. Stream 0 is the caller's.
        events: Events between streams.
        memory: The memory plan.
        makespan_us: Predicted time of this schedule.
        single_us: Predicted time of the same ops on one stream.
        decided_by: "measured", "simulated" or "requested".
        trial: Measured times, if ``decided_by`` is "measured".
        note: The reason for the schedule in words.
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
        """Number of streams, including the caller's."""
        return 1 + max((op.stream for op in self.ops), default=0)

    @property
    def total(self) -> Total:
        """Predicted time, with the number of estimated and unknown kernel times in it."""
        sources = [op.source for op in self.ops]
        estimated, untimed = sources.count("estimated"), sources.count("unknown")
        return Total(self.makespan_us, len(sources), estimated, untimed)

    @property
    def predicted_speedup(self) -> float:
        """Predicted speedup over one stream."""
        return self.single_us / self.makespan_us if self.makespan_us else 1.0

    def __str__(self) -> str:
        """One line: streams, events, times and memory."""
        arena, alone = self.memory.peak_bytes / 1e6, self.memory.single_stream_bytes / 1e6
        return (
            f"{self.streams} stream{'s' if self.streams > 1 else ''} ({self.decided_by}"
            f"{f': {self.note}' if self.note else ''}), "
            f"{len(self.events)} events; predicted {self.total}, one after the other "
            f"{self.single_us:.1f} us; arena {arena:.1f} MB, on one stream {alone:.1f} MB"
        )

    def on_stream(self, stream: int) -> list[int]:
        """Return the indices of a stream's ops, in launch order."""
        return [i for i, op in enumerate(self.ops) if op.stream == stream]

    def to_json(self) -> dict[str, object]:
        data = dataclasses.asdict(self)
        for op in data["ops"]:
            op["footprint"] = op.pop("occupancy")  # its name in files
        return {"format": SCHEDULE_FORMAT, **data}

    def dumps(self) -> str:
        """Return the schedule as JSON text."""
        return json.dumps(self.to_json(), sort_keys=True)

    @classmethod
    def from_json(cls, data: object) -> Schedule:
        """Inverse of :meth:`to_json`; raises CorruptArtefact for anything else."""
        found = data.get("format") if isinstance(data, dict) else None
        if found != SCHEDULE_FORMAT:
            raise CorruptArtefact(
                f"a schedule of format {str(found)[:60]}", f"format {SCHEDULE_FORMAT}"
            )
        required = ("ops", "events", "memory", "trial")
        made = checks.made(
            lambda format, **rest: cls(**rest),
            data, _SCHEDULE, "schedule", CorruptArtefact, required,
        )  # fmt: skip
        made._check_numbers()
        return made

    def _check_numbers(self) -> None:
        """Check that ops, events and buffers name ops that there are, in launch order."""
        count = len(self.ops)
        for place, op in enumerate(self.ops):
            if any(before >= place for before in op.depends):
                raise CorruptArtefact(f"op {place} that depends on {op.depends}", "on earlier ops")
        for event in self.events:
            last = event.wait if event.wait != ORIGIN else count
            if not (event.record < last <= count and event.wait < count):
                raise CorruptArtefact(
                    f"an event from op {event.record} to {event.wait} of {count} ops",
                    "one of these ops that waits for an earlier one",
                )
        for buffer in self.memory.buffers:
            if max((*buffer.writers, *buffer.readers), default=-1) >= count:
                raise CorruptArtefact(
                    f"buffer {buffer.name[:60]!r} of ops {buffer.writers} and {buffer.readers}",
                    f"ops below {count}",
                )

    @classmethod
    def loads(cls, text: str) -> Schedule:
        """Inverse of :meth:`dumps`."""
        return cls.from_json(checks.parse_json(text, "a schedule", CorruptArtefact))


def _made(
    kind: Callable[..., object],
    what: str,
    fields: Mapping[str, checks.Check],
    optional: Collection[str] = (),
) -> checks.Check:
    """Check an object with all fields but the optional ones and return ``kind`` of them."""
    required = [name for name in fields if name not in optional]
    return lambda data: checks.made(kind, data, fields, what, CorruptArtefact, required)


_TIME = checks.number(-1e15, 1e15)
_NAME = checks.text(1 << 16)
_BYTES = checks.integer(0, 2**63 - 1)
_INDICES = checks.tuple_of(checks.integer())
#: Fields that schedules of earlier versions do not have.
_LINKS = ("early", "linked", "chained_us")
_OPS: dict[str, checks.Check] = {
    **dict.fromkeys(("name", "symbol", "kind", "source", "kernel"), _NAME),
    **dict.fromkeys(("duration_us", "start_us", "end_us"), _TIME),
    "footprint": _made(
        Occupancy,
        "footprint",
        {
            **dict.fromkeys(("blocks", "threads", "shared_bytes"), _BYTES),
            "waves": checks.number(0.0, 1e15),
        },
    ),
    "stream": checks.integer(0, 1 << 16),
    "depends": _INDICES,
    **dict.fromkeys(("early", "linked"), checks.boolean),
    "chained_us": checks.optional(_TIME),
}
_BUFFER: dict[str, checks.Check] = {
    "name": _NAME,
    **dict.fromkeys(("offset", "size"), _BYTES),
    **dict.fromkeys(("writers", "readers"), _INDICES),
}
_MEMORY: dict[str, checks.Check] = {
    "buffers": checks.tuple_of(_made(Buffer, "buffer", _BUFFER)),
    **dict.fromkeys(("peak_bytes", "single_stream_bytes", "total_bytes"), _BYTES),
}
_TRIAL = dict.fromkeys(("single_us", "multi_us", "single_spread_us", "multi_spread_us"), _TIME)
_SCHEDULE: dict[str, checks.Check] = {
    "format": checks.integer(),
    "ops": checks.tuple_of(
        _made(lambda footprint, **rest: Op(occupancy=footprint, **rest), "op", _OPS, _LINKS)
    ),
    "events": checks.tuple_of(
        _made(Event, "event", dict.fromkeys(("record", "wait"), checks.integer(ORIGIN)))
    ),
    "memory": _made(MemoryPlan, "memory", _MEMORY),
    **dict.fromkeys(("makespan_us", "single_us"), _TIME),
    **dict.fromkeys(("decided_by", "note"), _NAME),
    "trial": checks.optional(_made(Trial, "trial", _TRIAL)),
}
