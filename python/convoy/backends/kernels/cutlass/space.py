"""Search space of the CUTLASS kernels, as data: tiles by family, dtype and architecture.

Every entry is a kernel that is compiled at most once for each dtype and epilogue and then serves
every workload that fits, so the lists are short on purpose: an sm90 kernel costs 30 to 50 seconds
of a core. What a workload is offered of them is decided by :mod:`.rules`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ....ir.dtypes import DTYPE_BYTES
from ....ir.workload import Workload
from .config import KernelConfig, shared_memory
from .parameters import Family


@dataclass(frozen=True)
class Sm90Tile:
    """``depth`` is the reduction tile in bytes: 128 is one swizzled shared memory row. ``epilogue``
    and ``columns``, in bytes, are the config's ``epilogue_stages`` and ``epilogue_columns``."""

    m: int
    n: int
    schedule: str
    cluster: tuple[int, int] = (1, 1)
    scheduler: str = "tiles"
    depth: int = 128
    epilogue: tuple[int, int] = (0, 0)
    columns: int = 0


@dataclass(frozen=True)
class Sm80Tile:
    """``k`` is the reduction tile in 16-bit elements, as many bytes in other dtypes."""

    m: int
    n: int
    k: int
    warp: tuple[int, int]
    stages: int
    scheduler: str = "tiles"


#: For convolutions and GEMMs alike. Large tiles are bound by the tensor cores, small ones
#: fill the device if there are few output pixels; a deeper reduction tile halves the barriers.
SM90_TILES = (
    Sm90Tile(128, 128, "pingpong", (2, 1)),
    Sm90Tile(128, 256, "cooperative", (2, 1)),
    Sm90Tile(256, 128, "cooperative", (2, 1)),
    Sm90Tile(256, 64, "cooperative"),
    Sm90Tile(128, 64, "pingpong"),
    Sm90Tile(64, 128, "pingpong"),
    Sm90Tile(64, 64, "pingpong"),
    Sm90Tile(64, 64, "pingpong", depth=256),
    Sm90Tile(64, 32, "pingpong", depth=256),
    Sm90Tile(128, 128, "cooperative", scheduler="streamk"),
    Sm90Tile(128, 64, "cooperative", scheduler="streamk"),
    Sm90Tile(64, 64, "pingpong", scheduler="splitk", depth=256),
    Sm90Tile(128, 64, "pingpong", scheduler="splitk"),
)

#: Additions for GEMMs with a residual or a second output, which memory bounds and not the tensor
#: cores. Their epilogue has more residuals and stores under way than CUTLASS would give it, so that
#: memory stays busy during the main loop; the main loop keeps two to four stages.
SM90_DEEP_EPILOGUE_TILES = (
    Sm90Tile(128, 256, "cooperative", epilogue=(4, 3), columns=128),
    Sm90Tile(128, 128, "cooperative", epilogue=(8, 4), columns=64),
    Sm90Tile(128, 128, "pingpong", (2, 1), epilogue=(8, 4), columns=128),
)

#: All channel counts on sm80 to sm89, and on sm90 what its own kernels cannot do.
SM80_TILES = (
    Sm80Tile(128, 128, 32, (64, 64), 4),
    Sm80Tile(256, 128, 32, (64, 64), 3),
    Sm80Tile(128, 64, 64, (64, 32), 4),
    Sm80Tile(64, 128, 32, (32, 64), 4),
    Sm80Tile(64, 64, 64, (32, 32), 4),
    Sm80Tile(64, 64, 64, (32, 32), 4, scheduler="splitk"),
    Sm80Tile(128, 64, 32, (64, 32), 4, scheduler="splitk"),
)

#: Additions to the sm90 kernels where the whole problem is a handful of tiles.
SM80_TILES_BESIDE_SM90 = (
    Sm80Tile(64, 64, 64, (32, 32), 5),
    Sm80Tile(64, 64, 64, (32, 32), 5, scheduler="splitk"),
)

#: First layers: few input channels, so the reduction runs over (r, s, c) together.
FEW_CHANNEL_TILES = (
    Sm80Tile(128, 64, 32, (64, 32), 3),
    Sm80Tile(128, 64, 64, (64, 32), 3),
    Sm80Tile(256, 64, 32, (64, 32), 3),
    Sm80Tile(128, 128, 32, (64, 64), 3),
)
#: int8.
INT8_TILES = (
    Sm80Tile(128, 128, 32, (64, 64), 4),
    Sm80Tile(256, 128, 32, (64, 64), 3),
    Sm80Tile(128, 64, 32, (64, 32), 4),
    Sm80Tile(64, 64, 64, (32, 32), 4),
)
#: Results that a thread writes at once: each needs registers for its channel.
MOST_OUTPUTS = 8
#: Channel counts up to here are few.
MOST_FEW_CHANNELS = 32


def kernels(workload: Workload, arch: int) -> Iterator[KernelConfig]:
    """All kernels of the space whose alignment, dtype and epilogue fit the workload.

    Whether one is sensible for the workload's sizes is another question. Yields nothing for
    channel counts that no vector width divides.
    """
    if workload.is_integer:
        yield from _sm80_kernels(workload, arch, INT8_TILES, "sm80_int8_conv")
    elif takes_sm90(workload, arch):
        yield from _sm90_kernels(workload)
        yield from _sm80_kernels(workload, arch, SM80_TILES_BESIDE_SM90)
    else:
        yield from _sm80_kernels(workload, arch, SM80_TILES)
    if workload.r * workload.s > 1 and workload.c <= MOST_FEW_CHANNELS:
        family: Family = "sm80_int8_conv" if workload.is_integer else "sm80_conv"
        yield from _few_channel_kernels(workload, arch, family)


def takes_sm90(workload: Workload, arch: int) -> bool:
    """Return whether TMA can address the operands: sm_90, 16-byte multiples along C and K."""
    c_bytes = workload.c * DTYPE_BYTES[workload.dtype]
    k_bytes = workload.k * DTYPE_BYTES[workload.out_dtype]
    return arch == 90 and c_bytes % 16 == 0 and k_bytes % 16 == 0


def is_pointwise(workload: Workload) -> bool:
    """A convolution that is a GEMM: 1x1, stride 1, no padding."""
    return workload.op == "matmul" or (
        workload.r == workload.s == 1 and workload.stride == (1, 1) and not any(workload.padding)
    )


def vector_width(channels: int, dtype: str) -> int:
    """Widest access of up to 16 bytes that divides a channel count, 0 if it is under 4 bytes."""
    width = 16 // DTYPE_BYTES[dtype]
    while width > 1 and channels % width:
        width //= 2
    return width if width * DTYPE_BYTES[dtype] >= 4 else 0


def _sm90_kernels(workload: Workload) -> Iterator[KernelConfig]:
    align = 16 // DTYPE_BYTES[workload.dtype]
    tiles: tuple[Sm90Tile, ...] = SM90_TILES
    if is_pointwise(workload) and (workload.epilogue.residual or workload.epilogue.affine_relu):
        tiles += SM90_DEEP_EPILOGUE_TILES
    for tile in tiles:
        if workload.epilogue.residual_last and tile.scheduler == "splitk":
            continue  # the second kernel adds the residual to the sums
        yield KernelConfig(
            family="sm90_gemm" if is_pointwise(workload) else "sm90_conv",
            tile=(tile.m, tile.n, tile.depth // DTYPE_BYTES[workload.dtype]),
            cluster=tile.cluster,
            schedule=tile.schedule,
            scheduler=tile.scheduler,
            align=align,
            align_out=16 // DTYPE_BYTES[workload.out_dtype],
            epilogue_stages=tile.epilogue,
            epilogue_columns=tile.columns // DTYPE_BYTES[workload.out_dtype],
            **_types_and_epilogue(workload),
        )


def sm90_backward_kernels(
    family: Family, workload: Workload, tiles: Iterable[Sm90Tile]
) -> Iterator[KernelConfig]:
    """Kernels of a dgrad or wgrad family, 16-bit operands; see :func:`takes_sm90`."""
    for tile in tiles:
        yield KernelConfig(
            family=family,
            tile=(tile.m, tile.n, tile.depth // DTYPE_BYTES[workload.dtype]),
            cluster=tile.cluster,
            schedule=tile.schedule,
            scheduler=tile.scheduler,
            **_types_and_epilogue(workload),
        )


def sm80_backward_kernels(
    family: Family, workload: Workload, arch: int, tiles: Iterable[Sm80Tile]
) -> Iterator[KernelConfig]:
    """Kernels of a dgrad or wgrad family; none for channel counts that no vector width divides."""
    dtype = max(workload.dtype, workload.out_dtype, key=lambda name: DTYPE_BYTES[name])
    align = vector_width(workload.c, dtype)
    align_out = vector_width(workload.k, dtype)
    if align and align_out:
        iterator = "optimized" if max(workload.r, workload.s) <= 32 else "analytic"
        for tile in tiles:
            yield from _sm80_kernel(workload, arch, tile, iterator, align, align_out, family)


def _sm80_kernels(
    workload: Workload, arch: int, tiles: tuple[Sm80Tile, ...], family: Family = "sm80_conv"
) -> Iterator[KernelConfig]:
    align = vector_width(workload.c, workload.dtype)
    align_out = min(MOST_OUTPUTS, vector_width(workload.k, workload.out_dtype))
    if not align or not align_out:
        return
    # The optimized iterator keeps one mask bit a filter row and column.
    iterator = "optimized" if max(workload.r, workload.s) <= 32 else "analytic"
    for tile in tiles:
        splits = tile.scheduler == "splitk"
        if not (workload.epilogue.affine_relu and not splits) and not (
            workload.epilogue.residual_last and splits
        ):
            yield from _sm80_kernel(workload, arch, tile, iterator, align, align_out, family)


def _few_channel_kernels(workload: Workload, arch: int, family: Family) -> Iterator[KernelConfig]:
    align = vector_width(workload.c, workload.dtype)
    align_out = min(MOST_OUTPUTS, vector_width(workload.k, workload.out_dtype))
    if not align or not align_out or workload.epilogue.affine_relu:
        return
    iterator = "fixed_channels" if workload.c == align else "few_channels"
    for tile in FEW_CHANNEL_TILES:
        yield from _sm80_kernel(workload, arch, tile, iterator, align, align_out, family)


def _sm80_kernel(
    workload: Workload,
    arch: int,
    tile: Sm80Tile,
    iterator: str,
    align: int,
    align_out: int,
    family: Family,
) -> Iterator[KernelConfig]:
    config = KernelConfig(
        family=family,
        tile=(tile.m, tile.n, tile.k * 2 // DTYPE_BYTES[workload.dtype]),
        warp=tile.warp,
        stages=tile.stages,
        scheduler=tile.scheduler,
        iterator=iterator,
        align=align,
        align_out=align_out,
        arch=arch,
        **_types_and_epilogue(workload),
    )
    if config.least_shared_bytes <= shared_memory(arch):
        yield config


def _types_and_epilogue(workload: Workload) -> dict[str, Any]:
    return {
        "dtype": workload.dtype,
        "out_dtype": workload.out_dtype,
        "activation": workload.epilogue.activation,
        "residual": workload.epilogue.residual,
        "affine_relu": workload.epilogue.affine_relu,
        "residual_last": workload.epilogue.residual_last,
    }
