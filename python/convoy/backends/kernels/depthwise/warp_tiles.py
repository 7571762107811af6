"""Launches of the grouped convolutions on tensor cores: a tile of a warp and an activation each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ....ir.workload import Workload
from ..kernel import Launch as KernelLaunch
from .kernels import DepthwiseKernel
from .space import ACTIVATIONS

Launch = KernelLaunch[DepthwiseKernel]


class Tile(NamedTuple):
    """Tile of a warp: 16 x rows pixels, 8 x columns output channels."""

    rows: int
    columns: int

    @property
    def outputs(self) -> int:
        """Output channels of a group that a block computes."""
        return 8 * self.columns


def launch_of(kernel: DepthwiseKernel, tile: int, activation: str) -> Launch:
    """The launch of a tile."""
    return Launch(kernel, swizzle=tile * len(ACTIVATIONS) + ACTIVATIONS.index(activation))


def launches(kernel: DepthwiseKernel, tiles: Sequence[Tile], w: Workload) -> list[Launch]:
    """The launches of all tiles except those with column tiles outside the problem."""
    most = -(-(w.k // w.groups) // 8)
    used = [number for number, tile in enumerate(tiles) if tile.columns <= most]
    return [launch_of(kernel, tile, w.epilogue.activation) for tile in used]


def tile_of(launch: Launch, tiles: Sequence[Tile]) -> Tile:
    """The tile of a launch, which must have one."""
    return tiles[launch.swizzle // len(ACTIVATIONS)]


def mismatch(launch: Launch, tiles: Sequence[Tile], w: Workload) -> str:
    """Return what a launch has that a workload does not; empty if they fit."""
    tile, activation = divmod(launch.swizzle, len(ACTIVATIONS))
    if launch.kernel.dtype != w.dtype:
        return f"{launch.kernel.name} is of another dtype"
    if tile >= len(tiles):
        return f"{launch.kernel.name} has no tile for swizzle {launch.swizzle}"
    if ACTIVATIONS[activation] != w.epilogue.activation:
        return f"swizzle {launch.swizzle} stands for another activation"
    return ""
