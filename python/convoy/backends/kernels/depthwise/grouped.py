"""The grouped convolution on tensor cores: tiles, which workloads it takes, launches, best first.

Mirrors ``codegen/depthwise/grouped_tiles.cuh`` and the checks of its library; tests compare them.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....ir.device import Device
from ....ir.workload import Workload
from . import warp_tiles
from .kernels import GroupedKernel
from .warp_tiles import Launch, Tile, mismatch, tile_of

#: Filter rows or columns at most; bytes of shared memory that every GPU gives a block.
MOST_FILTER, MOST_SHARED = 32, 96 << 10
_WARPS, _STEP = 4, 16


TILES = tuple(Tile(rows, columns) for columns in (1, 2, 3, 4) for rows in (1, 2, 4))


def objections(w: Workload) -> Iterator[tuple[str, str]]:
    """(reason, remedy) of what rules the kernel out, beside what all kernels of the family need."""
    inputs, outputs = w.c // w.groups, w.k // w.groups
    if w.op != "fprop":
        yield f"{w.op} of a grouped convolution", "use the cudnn backend"
        return
    if w.dtype == "float32":
        yield "a grouped convolution in float32", "use the cudnn backend"
    if inputs % 4 or outputs % 2:
        found = f"{inputs} inputs and {outputs} outputs a group"
        yield f"{found}: multiples of 4 and 2", "use the cudnn backend"
    if max(w.r, w.s) > MOST_FILTER:
        yield f"a filter of {w.r}x{w.s}: at most {MOST_FILTER}x{MOST_FILTER}", ""
    if _shared_bytes(w, TILES[0]) > MOST_SHARED:
        yield f"{w.r}x{w.s}x{inputs} weights of an output", "use the cudnn backend"
    x, y = w.n * w.h * w.w * w.c, w.n * w.p * w.q
    if max(x, y * w.k, w.k * w.r * w.s * inputs) >= 1 << 31 or y >= 1 << 30:
        yield "a tensor of 4 GiB or 2^30 pixels", "split the batch"
    (top, left, bottom, right), (dilation_h, dilation_w) = w.padding, w.dilation
    extents = [w.h + top + bottom, w.w + left + right, dilation_h * w.r, dilation_w * w.s]
    if max(extents) >= 1 << 15 or (extents[2] * w.w + extents[3]) * w.c >= 1 << 31:
        yield "sizes beyond the kernel's index range", ""


def why_not(launch: Launch, w: Workload, device: Device) -> str:
    """Return why a launch cannot run a workload that the family accepts; empty if it can."""
    if found := mismatch(launch, TILES, w):
        return found
    needed = _shared_bytes(w, tile_of(launch, TILES))
    return f"{needed} bytes of shared memory" if needed > MOST_SHARED else ""


def launches(w: Workload) -> list[Launch]:
    """The launches of a workload."""
    return warp_tiles.launches(GroupedKernel(w.dtype), TILES, w)


def workspace_bytes(launch: Launch, w: Workload, device: Device) -> int:
    """None is needed."""
    return 0


#: Fitted to 168 times on an H200, of 15 problems at N=1 and 64 (spread 17%): a launch until its
#: first result; then microseconds of a warp that waits for the inputs of a step,
#: and of an SM's share of a load and of a multiplication.
_START_US, _WAIT_US, _LOAD_US, _MULTIPLY_US = 4.5, 0.22, 0.0081, 0.004
_EFFICIENCY = 0.8


def guess_us(launch: Launch, w: Workload, device: Device) -> float:
    """Time of a launch: that of its bytes, of its instructions or of one warp after another."""
    tile = tile_of(launch, TILES)
    across = w.groups * -(-(w.k // w.groups) // (8 * tile.columns))
    blocks = across * -(-w.n * w.p * w.q // (_WARPS * 16 * tile.rows))
    steps = _steps(w)
    step = _WARPS * (2 * tile.rows * _LOAD_US + tile.rows * tile.columns * _MULTIPLY_US / 2)
    busy = max(1.0, blocks / device.sm_count) * steps * step
    waiting = max(1.0, blocks / (device.sm_count * 8)) * steps * _WAIT_US
    moved = w.bytes_moved / (_EFFICIENCY * device.memory_bandwidth) * 1e6
    return _START_US + max(moved, busy, waiting)


def _steps(w: Workload) -> int:
    return -(-w.r * w.s * (w.c // w.groups) // _STEP)


def _shared_bytes(w: Workload, tile: Tile) -> int:
    steps = _steps(w)
    pitch = (steps * _STEP + 47) // 64 * 64 + 16
    return 8 * tile.columns * pitch * 2 + steps * 4 * 8
