"""The GPU that kernels are chosen for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Device:
    """The GPU that candidates are proposed for; plain data, so no GPU need be present.

    ``arch`` is the compute capability times ten (90 for Hopper), sizes are in bytes,
    ``memory_bandwidth`` in bytes per second as a large copy reaches it (read plus written).
    """

    name: str = "NVIDIA H200"
    arch: int = 90
    sm_count: int = 132
    shared_memory_per_block: int = 232448
    l2_bytes: int = 62914560
    memory_bytes: int = 150109880320
    memory_bandwidth: float = 4.3e12
