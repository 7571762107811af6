"""Rules of the CUTLASS wgrad kernels, with the interface of :mod:`.rules`.

The output is a filter, K rows by C columns for each of its R * S taps, and the reduction runs over
all N * P * Q pixels. Split-K cuts the pixels into slices, one or a few for each SM,
adds fp32 partial sums up in a fixed order and rounds once.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....ir.device import Device
from ....ir.dtypes import DTYPE_BYTES
from ....ir.workload import Workload
from . import space
from .config import KernelConfig
from .rules import Launch, im2col_limits, mismatch, workspace_bytes_of
from .space import Sm80Tile, Sm90Tile

#: Steps of the main loop below which a slice costs more than it saves.
LEAST_STEPS_OF_A_SLICE = 4
#: Output tiles, in multiples of the SMs, beyond which splitting is pointless.
MOST_WAVES_TO_SPLIT = 4
#: Slices of which partial sums take more than this are not tried: they are written and read again.
MOST_PARTIAL_BYTES = 128 << 20

# For guess(), in clock cycles, from timing ResNet-50's layers: bytes that one SM loads,
# bytes that all write and read, start and end of a tile, of a kernel that adds up, of stream-K.
LOAD_BYTES_PER_CYCLE, PARTIAL_BYTES_PER_CYCLE = 45, 2000
TILE_CYCLES, SUM_CYCLES, STREAMK_CYCLES = 1500, 4000, 6000

#: Rows are K, columns C of one tap. Memory bounds the GEMMs of early layers: a tile as wide as
#: the filter reads each pixel once.
SM90_TILES = (
    Sm90Tile(64, 64, "pingpong", scheduler="splitk"),
    Sm90Tile(64, 128, "pingpong", scheduler="splitk"),
    Sm90Tile(64, 256, "pingpong", scheduler="splitk"),
    Sm90Tile(128, 64, "pingpong", scheduler="splitk"),
    Sm90Tile(256, 64, "cooperative", scheduler="splitk"),
    Sm90Tile(128, 128, "pingpong", scheduler="splitk"),
    Sm90Tile(128, 128, "pingpong", (2, 1), scheduler="splitk"),
    Sm90Tile(128, 256, "cooperative", scheduler="splitk"),
    Sm90Tile(256, 128, "cooperative", scheduler="splitk"),
    Sm90Tile(128, 128, "cooperative", scheduler="streamk"),
    Sm90Tile(128, 256, "cooperative", scheduler="streamk"),
    Sm90Tile(128, 128, "pingpong"),
    Sm90Tile(64, 64, "pingpong"),
)
SM80_TILES = (
    Sm80Tile(128, 128, 32, (64, 64), 4, scheduler="splitk"),
    Sm80Tile(64, 64, 64, (32, 32), 4, scheduler="splitk"),
    Sm80Tile(128, 64, 32, (64, 32), 4, scheduler="splitk"),
)


def kernels(w: Workload, arch: int) -> Iterator[KernelConfig]:
    """All kernels of the space whose alignment and dtype fit the workload."""
    if space.takes_sm90(w, arch) and w.dtype != "float32":
        yield from space.sm90_backward_kernels("sm90_wgrad", w, SM90_TILES)
    else:
        yield from space.sm80_backward_kernels("sm80_wgrad", w, arch, SM80_TILES)


def why_not(launch: Launch, w: Workload, device: Device) -> str:
    """Return why the kernel cannot run the workload, as the library checks it; empty if it can."""
    config, split = launch.kernel, launch.split_k
    if w.op != "wgrad" or config.op != "wgrad":
        return f"a kernel for {config.op}, the workload is {w.op}"
    if reason := mismatch(config, w, device):
        return reason
    least = {"tiles": 1, "streamk": 1, "splitk": 2 if config.is_sm90 else 1}[config.scheduler]
    most = 1 if config.scheduler == "tiles" else reduction_tiles(config, w)
    if not least <= split <= most:
        return f"{split} slices, the kernel takes {least} to {most}"
    return _size_limits(config, w)


def _size_limits(config: KernelConfig, w: Workload) -> str:
    if w.n * w.p * w.q > 2**31 - 4097:
        return "more than 2^31 pixels"
    if config.is_sm90:
        return im2col_limits(w)
    if w.k * w.r * w.s * w.c % 4:
        return "a filter whose size is no multiple of 4"
    size = DTYPE_BYTES[w.dtype]
    largest = max(
        w.n * w.h * w.w * w.c * size, w.n * w.p * w.q * w.k * size, w.k * w.r * w.s * w.c * 4
    )
    return "a tensor of 2 GiB or more" if largest >= 2**31 else ""


def is_hopeful(config: KernelConfig, w: Workload, device: Device) -> bool:
    """Return whether the kernel may win: tiles not mostly empty, not one tile on a whole device."""
    m, n, _ = config.tile
    if (m > 64 and w.k <= m // 2) or (n > 64 and w.c <= n // 2):
        return False
    tiles = output_tiles(config, w)
    if config.scheduler == "tiles":
        return 2 * tiles >= device.sm_count or reduction_tiles(config, w) <= 8
    if config.scheduler == "splitk":
        return tiles <= MOST_WAVES_TO_SPLIT * device.sm_count
    return True


def launches(config: KernelConfig, w: Workload, device: Device) -> Iterator[Launch]:
    """Split counts that give about one, two and four waves of tiles, fewest slices first."""
    if config.scheduler in ("tiles", "streamk"):
        yield Launch(config)
        return
    tiles, steps = output_tiles(config, w), reduction_tiles(config, w)
    least = 2 if config.is_sm90 else 1
    partial_bytes = 4 * w.k * w.r * w.s * w.c
    most = min(steps // LEAST_STEPS_OF_A_SLICE, MOST_PARTIAL_BYTES // partial_bytes)
    found = [min(most, wave * device.sm_count // tiles) for wave in (1, 2, 4)]
    for split in sorted({split for split in found if split >= least} or {least}):
        yield Launch(config, split_k=split)


def guess(launch: Launch, w: Workload, device: Device) -> float:
    """A rough time in clock cycles to order candidates by: waves of slices, their partial sums."""
    config, split = launch.kernel, launch.split_k
    m, n, k = config.tile
    mma = m * n * k * 2 / (4096 if config.is_sm90 else 2048)
    step = max(mma, (m + n) * k * DTYPE_BYTES[config.dtype] / LOAD_BYTES_PER_CYCLE)
    tiles, steps = output_tiles(config, w), reduction_tiles(config, w)
    if config.scheduler == "streamk":  # the blocks of a tile add up one after the other
        sharing = max(1.0, device.sm_count / tiles)
        return tiles * steps * step / device.sm_count + STREAMK_CYCLES * sharing
    waves = -(-tiles * split // device.sm_count)
    cycles = waves * (-(-steps // split) * step + TILE_CYCLES)
    if config.scheduler == "splitk":
        cycles += split * w.k * w.r * w.s * w.c * 8 / PARTIAL_BYTES_PER_CYCLE + SUM_CYCLES
    return cycles


def output_tiles(config: KernelConfig, w: Workload) -> int:
    """Tiles of the filter, rows rounded up to whole clusters; a tile has columns of one tap."""
    m, n, _ = config.tile
    columns = -(-w.c // n) * w.r * w.s if config.is_sm90 else -(-w.r * w.s * w.c // n)
    return -(-w.k // (m * config.cluster[0])) * config.cluster[0] * columns


def reduction_tiles(config: KernelConfig, w: Workload) -> int:
    return -(-w.n * w.p * w.q // config.tile[2])


def workspace_bytes(launch: Launch, w: Workload) -> int:
    """Workspace of a launch; for stream-K an upper bound."""
    return workspace_bytes_of(launch, output_tiles(launch.kernel, w), w.k * w.r * w.s * w.c)
