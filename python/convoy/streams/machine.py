"""What the scheduler knows of a GPU besides the durations of the ops."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..ir.schedule import Footprint

if TYPE_CHECKING:
    from ..ir.device import Device


@dataclass(frozen=True)
class Machine:
    """Sizes of a GPU and costs of crossing streams, in microseconds.

    ``cross_us`` is what an edge between two streams costs on top of one inside a stream, under a
    replayed graph; ``fork_us`` the same for a branch that starts with the function. Under a graph
    ``enqueue_us`` is 0; otherwise it is the host's time for one op, and ``event_us`` that for an
    event record or wait. ``registers`` and ``shared_bytes`` are per multiprocessor, ``l2_bytes``
    are those of the whole device.
    """

    sm_count: int = 132
    threads: int = 2048
    blocks: int = 32
    shared_bytes: int = 233472
    registers: int = 65536
    bandwidth: float = 4.3e12
    l2_bytes: int = 62914560
    cross_us: float = 2.0
    fork_us: float = 1.5
    enqueue_us: float = 0.0
    event_us: float = 0.0
    kernel_us: float = 1.6

    @classmethod
    def of(cls, device: Device) -> Machine:
        """A machine for a device description; a block cannot have more shared memory than the
        multiprocessor, which has 1 KiB more than the largest block."""
        return cls(
            sm_count=device.sm_count,
            shared_bytes=device.shared_memory_per_block + 1024,
            bandwidth=device.memory_bandwidth,
            l2_bytes=device.l2_bytes,
        )

    def without_graph(self) -> Machine:
        """The same where the host launches every op and event itself."""
        return dataclasses.replace(self, enqueue_us=3.0, event_us=1.0)

    def waves(self, blocks: int, threads: int, shared_bytes: int, registers: int = 0) -> float:
        """Blocks over those that the whole device holds at a time (see :class:`Footprint`)."""
        resident = min(
            self.blocks,
            self.threads // max(1, threads),
            self.shared_bytes // (shared_bytes + 1024) if shared_bytes else self.blocks,
            self.registers // (registers * threads) if registers and threads else self.blocks,
        )
        return blocks / (max(1, resident) * self.sm_count)

    def footprint(
        self, blocks: int, threads: int, shared_bytes: int = 0, registers: int = 0
    ) -> Footprint:
        """A launch's footprint on this machine."""
        waves = self.waves(blocks, threads, shared_bytes, registers)
        return Footprint(blocks, threads, shared_bytes, round(waves, 4))

    def estimate_us(self, moved_bytes: int, launches: int = 1) -> float:
        """Duration of kernels that are bound by memory: bytes over bandwidth, and a fixed part for
        each launch."""
        return launches * self.kernel_us + moved_bytes / self.bandwidth * 1e6
