"""The GPU that kernels are selected for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Device:
    """The GPU that candidates are proposed for. It is plain data: no GPU has to be present.

    Attributes:
        name: As CUDA reports it.
        arch: Compute capability times ten (90 for Hopper).
        sm_count: Number of SMs.
        shared_memory_per_block: Largest dynamic shared memory of a block, in bytes.
        l2_bytes: Size of the L2 cache.
        memory_bytes: Size of device memory.
        memory_bandwidth: Bytes per second, read plus written, of a large copy.
        threads_per_sm: Maximum number of resident threads of an SM.
        blocks_per_sm: Maximum number of resident blocks of an SM.
        registers_per_sm: 32-bit registers of an SM.
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
        """Bytes; CUDA reserves 1 KiB of it for each block."""
        return self.shared_memory_per_block + 1024
