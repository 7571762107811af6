"""Search space of the kernels of ``codegen/sm90``, with estimates to order it."""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.device import Device
from ....ir.workload import Workload
from .. import kernel as kernels
from .dgrad import DgradKernel
from .kernels import Sm90Kernel
from .stem import StemDgradKernel, StemFpropKernel, StemWgradKernel
from .wgrad import wgrad_choices, wgrad_workspace

#: Orders of tiles (``OrderKind`` of tile_order.cuh), as ConvoyShape.swizzle.
UNITS, SORTED, TURNED = 1, 2, 3

# Schedules: OVERLAPPED and SWAP_AB store a tile under the main loop of the next one.
COOPERATIVE, OVERLAPPED, SWAP_AB, PINGPONG = "cooperative", "overlapped", "swap_ab", "pingpong"

# rows, columns, schedule, epilogue stages, commit group, consumers, split. With as many epilogue
# stages as subtiles a tile's stores drain under the next tile's main loop; variants with fewer have
# room for a load stage more.
_TILES = (
    (192, 256, COOPERATIVE, 2, 1, 3, 1),
    (192, 256, COOPERATIVE, 2, 2, 3, 1),
    (128, 256, COOPERATIVE, 4, 4, 2, 1),
    (128, 256, COOPERATIVE, 2, 2, 2, 1),
    (128, 256, OVERLAPPED, 2, 1, 2, 1),
    (128, 256, OVERLAPPED, 1, 1, 2, 1),
    (256, 128, COOPERATIVE, 2, 2, 2, 1),
    (256, 128, OVERLAPPED, 2, 2, 2, 1),
    (256, 128, SWAP_AB, 2, 2, 2, 1),
    (128, 128, PINGPONG, 4, 4, 2, 1),
    (128, 128, COOPERATIVE, 2, 2, 2, 1),
    (384, 64, COOPERATIVE, 2, 2, 3, 1),
    (256, 64, COOPERATIVE, 2, 2, 2, 1),
    (64, 128, PINGPONG, 2, 2, 2, 1),
    (128, 64, PINGPONG, 2, 2, 2, 1),
    (64, 64, PINGPONG, 1, 1, 2, 1),
    (128, 128, COOPERATIVE, 1, 1, 2, 2),
    (128, 256, COOPERATIVE, 1, 1, 2, 2),
)


#: Of an own kernel: ``swizzle`` is the order of tiles, or rows of a chunk for the stem.
Launch = kernels.Launch[Sm90Kernel]


@dataclass(frozen=True)
class PhaseAxis:
    """One axis of one phase: the same as ``PhaseAxis`` of phases.cuh, which derives it."""

    extent: int
    taps: int
    first: int
    lower: int

    @classmethod
    def of(cls, size: int, filter_size: int, stride: int, pad: int, phase: int) -> PhaseAxis:
        extent = max(0, -(-(size - phase) // stride))
        first = (phase + pad) % stride
        taps = max(0, -(-(filter_size - first) // stride))
        return cls(extent, taps, first, (phase + pad) // stride - (taps - 1))


def phases(w: Workload) -> list[tuple[PhaseAxis, PhaseAxis]]:
    """The phases of dx that have elements, most taps first."""
    top, left = w.padding[:2]
    found = [
        (
            PhaseAxis.of(w.h, w.r, w.stride[0], top, a),
            PhaseAxis.of(w.w, w.s, w.stride[1], left, b),
        )
        for a in range(w.stride[0])
        for b in range(w.stride[1])
    ]
    present = [(h, x) for h, x in found if h.extent and x.extent]
    return sorted(present, key=lambda axes: -axes[0].taps * axes[1].taps)


def dgrad_launches(w: Workload, device: Device) -> list[Launch]:
    """dgrad kernels of a workload with all orders, best guess first.

    With taps in one phase only, the orders are the same.
    """
    taps = [h.taps * x.taps for h, x in phases(w)]
    zeros = 0 in taps
    orders = (UNITS, SORTED, TURNED) if len(taps) - taps.count(0) > 1 else (UNITS,)
    widest = -(-w.c // 64) * 64
    launches = []
    for rows, columns, schedule, stages, group, consumers, split in _TILES:
        if columns > max(64, widest):
            continue
        kernel = DgradKernel(
            rows, columns, schedule == PINGPONG, stages, group, consumers,
            swap_ab=schedule == SWAP_AB,
            overlapped_epilogue=schedule in (OVERLAPPED, SWAP_AB),
            zeros=zeros, split=split, dtype=w.dtype,
        )  # fmt: skip
        launches += [Launch(kernel, swizzle=order) for order in orders]
    return sorted(launches, key=lambda launch: _rank(launch, w, device))


def stem_launches(w: Workload, device: Device) -> list[Launch]:
    """The stem's kernels with their own choice of chunks, and with fixed ones around it."""
    if w.op == "wgrad":
        return [Launch(kernel, swizzle=rows) for kernel, rows in wgrad_choices(w, device)]
    kernel: Sm90Kernel
    if w.op == "dgrad":
        kernel = StemDgradKernel(w.c, w.dtype)
        rows, strips = (w.h + 1) // 2, (w.w + 239) // 240  # 120 output columns, two of dx each
    else:
        relu = w.epilogue.activation == "relu"
        kernel = StemFpropKernel(w.c, w.r, w.s, relu, w.dtype)
        rows, strips = w.p, (w.q + 127) // 128
    # As many chunks as give every SM one or two.
    chunks = set()
    for blocks in (1, 2):
        per_image = max(1, blocks * device.sm_count // (w.n * strips))
        chunks.add(-(-rows // min(rows, per_image)))
    return [Launch(kernel), *(Launch(kernel, swizzle=size) for size in sorted(chunks))]


def workspace_bytes(launch: Launch, w: Workload, device: Device) -> int:
    """Workspace of a launch."""
    if isinstance(launch.kernel, StemWgradKernel):
        return wgrad_workspace(launch.kernel, launch.swizzle, w, device)
    return 0


def _rank(launch: Launch, w: Workload, device: Device) -> tuple[float, bool, int, int, bool, str]:
    """Key that orders candidates: their guessed time; of equals, as measured on an H200, those
    first that store a tile under the next one, with more stages, fewer rows, swap-AB."""
    kernel = launch.kernel
    assert isinstance(kernel, DgradKernel)
    name = f"{kernel.name}.{launch.swizzle}"
    time = _guess(kernel, launch.swizzle, w, device)
    return (
        time,
        not kernel.overlapped_epilogue,
        -kernel.stages,
        kernel.rows,
        not kernel.swap_ab,
        name,
    )


def _guess(kernel: DgradKernel, swizzle: int, w: Workload, device: Device) -> float:
    """A rough time, in reduction steps of a 128x128 tile."""
    columns = -(-w.c // kernel.columns)
    # Small tiles move more bytes from L2 for each multiplication than the machine can deliver.
    area = kernel.rows * kernel.columns / (128 * 128)
    step = max(area, (kernel.rows + kernel.columns) / 256 * 1.2) / kernel.split
    store = area * (0.3 if kernel.pingpong else 1.0) + (1.0 if kernel.split > 1 else 0.0)
    clusters = device.sm_count // kernel.split
    times = [
        (-(-w.n * h.extent * x.extent // kernel.rows), h.taps * x.taps * -(-w.k // 64) * step)
        for h, x in phases(w)
        if h.taps * x.taps
    ]
    if not times:
        return 0.0
    if swizzle != SORTED:
        units = max(tiles for tiles, _ in times) * columns
        time = -(-units // clusters) * sum(steps + store for _, steps in times)
    else:
        total = sum(tiles * columns * (steps + store) for tiles, steps in times)
        longest = times[0][1] + store
        time = max(longest, total / clusters + longest / 4)
    return time
