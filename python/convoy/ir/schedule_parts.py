"""Parts of a schedule as plain data: launches, the events between them, and storage."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from ..errors import CorruptArtefact
from . import fields as checks
from .measurement import Measurement
from .objective import device_us, saved_us, starts_successor_early

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
    ``start_us`` and ``end_us`` are predicted, from the launch of a replayed graph or, without one,
    from the fork.

    ``chained_us`` is its duration behind a kernel that lets it start early (None if it starts only
    when its predecessor has ended), and ``linked`` tells whether it is behind one in the schedule.
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
    chained_us: float | None = None
    linked: bool = False

    def timed(self, measurement: Measurement, added_us: float = 0.0) -> Op:
        """The op with a kernel of these times, and ``added_us`` for copies behind it."""
        us = device_us(measurement) + added_us
        chained_us = us - saved_us(measurement) if starts_successor_early(measurement) else None
        return dataclasses.replace(self, duration_us=us, chained_us=chained_us)

    @property
    def early(self) -> bool:
        """Whether its kernel lets the next one on its stream start before it has ended."""
        return self.chained_us is not None

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

    @property
    def is_inner(self) -> bool:
        """Whether it is between two ops: neither the fork nor the join."""
        return ORIGIN not in (self.record, self.wait)


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


def object_of(
    kind: Callable[..., object],
    what: str,
    fields: Mapping[str, checks.Check],
    optional: Collection[str] = (),
) -> checks.Check:
    """Accept an object with all fields but the optional ones; return ``kind`` of them."""
    required = [name for name in fields if name not in optional]
    return lambda data: checks.made(kind, data, fields, what, CorruptArtefact, required)


TIME = checks.number(-1e15, 1e15)
NAME = checks.text(1 << 16)
_BYTES = checks.integer(0, 2**63 - 1)
_INDICES = checks.tuple_of(checks.integer())
_OCCUPANCY: dict[str, checks.Check] = {
    **dict.fromkeys(("blocks", "threads", "shared_bytes"), _BYTES),
    "waves": checks.number(0.0, 1e15),
}
#: Fields that schedules of earlier versions do not have; later ones have no ``early``.
_LINKS = ("early", "linked", "chained_us")
_OP: dict[str, checks.Check] = {
    **dict.fromkeys(("name", "symbol", "kind", "source", "kernel"), NAME),
    **dict.fromkeys(("duration_us", "start_us", "end_us"), TIME),
    "footprint": object_of(Occupancy, "footprint", _OCCUPANCY),
    "stream": checks.integer(0, 1 << 16),
    "depends": _INDICES,
    **dict.fromkeys(("early", "linked"), checks.boolean),
    "chained_us": checks.optional(TIME),
}
_BUFFER: dict[str, checks.Check] = {
    "name": NAME,
    **dict.fromkeys(("offset", "size"), _BYTES),
    **dict.fromkeys(("writers", "readers"), _INDICES),
}
_MEMORY: dict[str, checks.Check] = {
    "buffers": checks.tuple_of(object_of(Buffer, "buffer", _BUFFER)),
    **dict.fromkeys(("peak_bytes", "single_stream_bytes", "total_bytes"), _BYTES),
}
#: Accept an entry of ``Schedule.ops``, of ``Schedule.events``, and ``Schedule.memory``.
OP = object_of(
    lambda footprint, early=False, **rest: Op(occupancy=footprint, **rest), "op", _OP, _LINKS
)
EVENT = object_of(Event, "event", dict.fromkeys(("record", "wait"), checks.integer(ORIGIN)))
MEMORY = object_of(MemoryPlan, "memory", _MEMORY)
