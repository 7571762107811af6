"""Rules of the CUTLASS fprop and GEMM kernels: which fit a workload, with which splits and
rasterization.

A kernel must be *valid* (the library's own check would accept it) and *hopeful*: tiles not mostly
empty, not one tile on a whole device. Everything else is left to measurement.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....ir.device import Device
from ....ir.dtypes import DTYPE_BYTES
from ....ir.workload import Workload
from .. import kernel
from .config import KernelConfig, kernel_arch, shared_memory
from .space import is_pointwise, kernels

__all__ = [
    "Launch",
    "is_hopeful",
    "kernels",
    "launches",
    "output_tiles",
    "reduction_tiles",
    "why_not",
    "workspace_bytes",
]

#: A slice of the reduction shorter than this many tiles does not pay for the second kernel.
LEAST_TILES_OF_A_SLICE = 2
MOST_SLICES = 32
#: Products -128 * -128 whose sum does not fit into int32 any more.
MOST_INT8_PRODUCTS = 1 << 17
#: Longest reduction, in main loop steps, of a GEMM that memory may bound: beyond it a deep epilogue
#: takes shared memory that the main loop needs.
MOST_STEPS_WITH_DEEP_EPILOGUE = 16

# Families by how they read the pixels; dgrad's are asked about the transposed problem.
_GEMM_FAMILIES = ("sm90_gemm", "sm90_dgrad_gemm")
_IM2COL_FAMILIES = ("sm90_conv", "sm90_dgrad")


#: Of a CUTLASS kernel: reduction slices, and tile rasterization as ``swizzle``.
Launch = kernel.Launch[KernelConfig]


def output_rows(workload: Workload) -> int:
    return workload.n * workload.p * workload.q


def reduction_tiles(config: KernelConfig, workload: Workload) -> int:
    """Steps of the main loop for one output tile."""
    k = config.tile[2]
    if config.iterator in ("fixed_channels", "few_channels"):
        return -(-workload.r * workload.s * workload.c // k)
    if config.family == "sm90_conv" and folds_width(config, workload):
        return -(-workload.c * workload.s // k) * workload.r
    return -(-workload.c // k) * workload.r * workload.s


def folds_width(config: KernelConfig, workload: Workload) -> bool:
    """Return whether an sm90 convolution reads a filter row as one tap of S*C channels
    (sm90_conv.cuh)."""
    w = workload
    pixel_bytes = w.stride[1] * w.c * DTYPE_BYTES[w.dtype]
    unpadded = w.padding[1] == w.padding[3] == 0 and w.dilation[1] == 1
    return w.s > 1 and w.c < config.tile[2] and unpadded and pixel_bytes % 16 == 0


def output_tiles(config: KernelConfig, workload: Workload) -> int:
    """Output tiles, rows rounded up to whole clusters."""
    m, n, _ = config.tile
    rows = -(-output_rows(workload) // m)
    columns = -(-workload.k // n)
    cluster_m, cluster_n = config.cluster
    return -(-rows // cluster_m) * cluster_m * (-(-columns // cluster_n) * cluster_n)


def workspace_bytes(launch: Launch, workload: Workload) -> int:
    """Workspace of a launch; for stream-K an upper bound (the library knows the exact size)."""
    tiles = output_tiles(launch.kernel, workload)
    return workspace_bytes_of(launch, tiles, output_rows(workload) * workload.k)


def workspace_bytes_of(launch: Launch, tiles: int, elements: int) -> int:
    """Workspace for this number of output tiles and elements."""
    config = launch.kernel
    if config.scheduler == "splitk":
        return launch.split_k * elements * 4
    if config.scheduler == "streamk":
        return tiles * config.tile[0] * config.tile[1] * 4 + tiles * 64 + 4096
    return 0


def mismatch(config: KernelConfig, workload: Workload, device: Device) -> str:
    """Reason why a kernel of any direction cannot run a workload: dtypes, alignment, architecture
    or shared memory. Empty if all of them fit."""
    if (config.dtype, config.out_dtype) != (workload.dtype, workload.out_dtype):
        return "compiled for other dtypes"
    if workload.c % config.align or workload.k % config.align_out:
        return f"C and K must be multiples of {config.align} and {config.align_out}"
    if config.arch != kernel_arch(device.arch):
        return f"compiled for sm_{config.arch}, the device is sm_{device.arch}"
    if config.least_shared_bytes > min(device.shared_memory_per_block, shared_memory(config.arch)):
        return "tile and stages exceed shared memory"
    return ""


def why_not(launch: Launch, workload: Workload, device: Device) -> str:
    """Reason why the kernel cannot run the workload; empty if it can. Mirrors the library's
    check."""
    config, epilogue = launch.kernel, workload.epilogue
    if reason := mismatch(config, workload, device):
        return reason
    if (config.activation, config.residual, config.affine_relu, config.residual_last) != (
        epilogue.activation,
        epilogue.residual,
        epilogue.affine_relu,
        epilogue.residual_last,
    ):
        return "compiled for another epilogue"
    if config.family in _GEMM_FAMILIES and not is_pointwise(workload):
        return "a GEMM kernel for a convolution that is not a GEMM"
    if config.iterator == "fixed_channels" and workload.c != config.align:
        return f"C must be {config.align}"
    return _size_limits(config, workload) or _split_limits(launch, workload)


def overflow(workload: Workload) -> str:
    """Reason why sums of int8 products may not fit into int32; empty if they do."""
    length = workload.c * workload.taps
    return f"sums of {length} products of int8" if length >= MOST_INT8_PRODUCTS else ""


def _size_limits(config: KernelConfig, workload: Workload) -> str:
    if output_rows(workload) > 2**31 - 1:
        return "more than 2^31 output rows"
    if not config.is_sm90:
        x = workload.n * workload.h * workload.w * workload.c * DTYPE_BYTES[workload.dtype]
        w = workload.k * workload.r * workload.s * workload.c * DTYPE_BYTES[workload.dtype]
        out = 4 if config.scheduler == "splitk" else DTYPE_BYTES[workload.out_dtype]
        y = output_rows(workload) * workload.k * out
        if max(x, w, y) >= 2**31:
            return "a tensor of 2 GiB or more"
        if config.iterator == "optimized" and max(workload.r, workload.s) > 32:
            return "filters of more than 32 rows or columns need the analytic iterator"
        return ""
    return im2col_limits(workload) if config.family in _IM2COL_FAMILIES else ""


def im2col_limits(workload: Workload) -> str:
    """Limits of an im2col tensor map (CUDA driver API, cuTensorMapEncodeIm2col)."""
    if max(workload.stride) > 8:
        return "stride above 8"
    top, left, bottom, right = workload.padding
    for size, dilation, before, after in (
        (workload.r, workload.dilation[0], top, bottom),
        (workload.s, workload.dilation[1], left, right),
    ):
        extent = (size - 1) * dilation
        if extent >= 255:
            return "a filter that spans more than 255 pixels"
        if before > 128 or not -128 <= after - extent <= 127:
            return "padding or filter that reaches more than 128 pixels over the image's edge"
    return ""


def _split_limits(launch: Launch, workload: Workload) -> str:
    config, split = launch.kernel, launch.split_k
    if config.scheduler == "tiles":
        return "" if split == 1 else "the kernel does not split the reduction"
    if config.scheduler == "streamk":
        return "" if 1 <= split <= reduction_tiles(config, workload) else "more slices than tiles"
    if split < 2:
        return "split-K needs at least 2 slices"
    if config.family in _GEMM_FAMILIES:
        whole = workload.c % (split * config.align) == 0
    elif config.family in _IM2COL_FAMILIES:
        whole = reduction_tiles(config, workload) % split == 0
    else:
        whole = split <= -(-workload.c // config.tile[2])
    return "" if whole else f"the reduction cannot be cut into {split} slices"


def is_hopeful(config: KernelConfig, workload: Workload, device: Device) -> bool:
    """Return whether the kernel may win: see the module's text. Never rejects the smallest
    tiles."""
    m, n, k = config.tile
    rows, tiles = output_rows(workload), output_tiles(config, workload)
    area, full = m * n, device.sm_count
    if m > 64 and rows <= m // 2:
        return False
    if n > 64 and workload.k <= n // 2:
        return False
    if config.cluster[0] > 1 and rows <= m:
        return False
    depth = reduction_tiles(config, workload)
    channels = workload.c * (workload.s if folds_width(config, workload) else 1)
    if k * DTYPE_BYTES[config.dtype] > 128 and channels % k and config.is_sm90:
        return False  # half of the deeper tile would be padding
    if config.has_own_epilogue:
        return depth <= MOST_STEPS_WITH_DEEP_EPILOGUE and 2 * tiles >= full
    if config.scheduler in ("splitk", "streamk") and depth < 2 * LEAST_TILES_OF_A_SLICE:
        return False
    if config.scheduler == "splitk":
        return 4 * tiles <= 3 * full
    if config.scheduler == "streamk":
        return tiles <= 16 * full
    if not config.is_sm90 and config.iterator == "optimized" and config.arch == 90:
        if config.align == 8 and config.align_out == 8:
            return tiles <= full // 2  # sm90 kernels are ahead of it on anything larger
        return tiles <= 32 * full or area >= 128 * 64
    if area >= 128 * 128:
        return 3 * tiles >= full
    if area <= 64 * 64:
        return tiles <= 16 * full
    return True


def launches(config: KernelConfig, workload: Workload, device: Device) -> Iterator[Launch]:
    """The run-time choices worth measuring for a kernel, best guess first."""
    if config.scheduler == "tiles":
        yield Launch(config)
        m, n, _ = config.tile
        many = output_tiles(config, workload) > 6 * device.sm_count
        wide = m * n >= 128 * 128 and not config.has_own_epilogue  # which keeps to one column
        if config.is_sm90 and wide and workload.k >= 4 * n and many:
            yield Launch(config, swizzle=4)  # neighbouring tiles share filters in the L2 cache
        return
    if config.scheduler == "streamk":
        yield Launch(config)
    for split in _splits(config, workload, device):
        yield Launch(config, split_k=split)


def _splits(config: KernelConfig, workload: Workload, device: Device) -> list[int]:
    """Up to two slice counts: about one wave, and about two (streamk: one wave only)."""
    tiles, depth = output_tiles(config, workload), reduction_tiles(config, workload)
    most = min(MOST_SLICES, depth // LEAST_TILES_OF_A_SLICE)
    possible = [
        split for split in range(2, most + 1) if not _split_limits(Launch(config, split), workload)
    ]
    waves = (1, 2) if config.scheduler == "splitk" else (1,)
    wanted = [wave * device.sm_count / tiles for wave in waves]
    if config.scheduler == "streamk" and wanted[0] < 2:
        return []
    return list(dict.fromkeys(_nearest(possible, target) for target in wanted if possible))


def _nearest(possible: list[int], target: float) -> int:
    """The largest count within one wave, or the smallest count."""
    fitting = [split for split in possible if split <= target]
    return fitting[-1] if fitting else possible[0]
