"""The GPU that kernels are chosen for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Device:
    """The GPU that candidates are proposed for; plain data, so no GPU need be present.

    ``arch`` is the compute capability times ten (90 for Hopper), sizes are in bytes,
    ``memory_bandwidth`` in bytes per second as a large copy reaches it (read plus written).
    ``threads_per_sm``, ``blocks_per_sm`` and ``registers_per_sm`` (32 bits each) are the most that
    are resident on one SM at a time.
    """

    name: str = "NVIDIA H200"
    arch: int = 90
    sm_count: int = 132
    shared_memory_per_block: int = 232448
    l2_bytes: int = 62914560
    memory_bytes: int = 150109880320
    memory_bandwidth: float = 4.3e12
    threads_per_sm: int = 2048
    blocks_per_sm: int = 32
    registers_per_sm: int = 65536

    @property
    def shared_memory_per_sm(self) -> int:
        """Bytes; the largest block has all of it but the 1 KiB that CUDA reserves for a block."""
        return self.shared_memory_per_block + 1024
