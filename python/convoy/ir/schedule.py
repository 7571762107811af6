"""The schedule of one function on CUDA streams, as plain data."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field

from ..errors import CorruptArtefact
from . import fields as checks
from .schedule_parts import EVENT, MEMORY, NAME, OP, ORIGIN, TIME, Event, MemoryPlan, Op, object_of

SCHEDULE_FORMAT = 1


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
    memory: MemoryPlan = field(default_factory=MemoryPlan)
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
        """Return one line: streams, events, times and memory."""
        arena, alone = self.memory.peak_bytes / 1e6, self.memory.single_stream_bytes / 1e6
        return (
            f"{self.streams} stream{'s' if self.streams > 1 else ''} ({self.decided_by}"
            f"{f': {self.note}' if self.note else ''}), "
            f"{len(self.events)} events; predicted {self.total}, one after the other "
            f"{self.single_us:.1f} us; arena {arena:.1f} MB, on one stream {alone:.1f} MB"
        )

    def to_json(self) -> dict[str, object]:
        """Return the schedule as data for JSON, with its format."""
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


_TRIAL = dict.fromkeys(("single_us", "multi_us", "single_spread_us", "multi_spread_us"), TIME)
_SCHEDULE: dict[str, checks.Check] = {
    "format": checks.integer(),
    "ops": checks.tuple_of(OP),
    "events": checks.tuple_of(EVENT),
    "memory": MEMORY,
    **dict.fromkeys(("makespan_us", "single_us"), TIME),
    **dict.fromkeys(("decided_by", "note"), NAME),
    "trial": checks.optional(object_of(Trial, "trial", _TRIAL)),
}
