"""Rules of the CUTLASS dgrad kernels, with the interface of :mod:`.rules`.

With stride 1 dx is a forward convolution of dy (``codegen/cutlass/dgrad_shape.cuh``), and the rules
of the forward kernels decide on that transposed problem. Strided problems have sm80 kernels alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from ....ir.device import Device
from ....ir.epilogue import Epilogue
from ....ir.workload import Workload
from . import rules, space
from .config import KernelConfig
from .parameters import Family
from .rules import Launch, workspace_bytes_of

#: Strided dgrad: few tiles, since every phase of dx has its own and they differ in work.
SM80_STRIDED_TILES = (
    space.Sm80Tile(128, 128, 32, (64, 64), 4),
    space.Sm80Tile(128, 64, 64, (64, 32), 4),
    space.Sm80Tile(64, 64, 64, (32, 32), 5),
)


def transposed(w: Workload) -> Workload | None:
    """The forward problem from dy to dx; None where stride or padding leave none."""
    reach = [d * (f - 1) for d, f in zip(w.dilation, (w.r, w.s), strict=True)]
    top, left, bottom, right = w.padding
    padding = (reach[0] - top, reach[1] - left, reach[0] - bottom, reach[1] - right)
    if w.stride != (1, 1) or min(padding) < 0:
        return None
    return dataclasses.replace(w, op="fprop", h=w.p, w=w.q, c=w.k, k=w.c, padding=padding)


def kernels(w: Workload, arch: int) -> Iterator[KernelConfig]:
    """All kernels of the space whose alignment and dtype fit the workload."""
    forward = transposed(w)
    if forward is None:
        yield from space.sm80_backward_kernels("sm80_strided_dgrad", w, arch, SM80_STRIDED_TILES)
    elif space.takes_sm90(w, arch) and w.dtype != "float32":
        family: Family = "sm90_dgrad_gemm" if space.is_pointwise(forward) else "sm90_dgrad"
        yield from space.sm90_backward_kernels(family, w, space.SM90_TILES)
        yield from _unit_stride_sm80(w, arch, space.SM80_TILES_BESIDE_SM90)
    else:
        yield from _unit_stride_sm80(w, arch, space.SM80_TILES)


def _unit_stride_sm80(
    w: Workload, arch: int, tiles: Iterable[space.Sm80Tile]
) -> Iterator[KernelConfig]:
    whole = [tile for tile in tiles if tile.scheduler == "tiles"]
    yield from space.sm80_backward_kernels("sm80_dgrad", w, arch, whole)


def why_not(launch: Launch, w: Workload, device: Device) -> str:
    """Return why the kernel cannot run the workload; empty if it can."""
    if w.op != "dgrad" or launch.kernel.op != "dgrad":
        return f"a kernel for {launch.kernel.op}, the workload is {w.op}"
    if launch.kernel.family == "sm80_strided_dgrad" and w.dilation != (1, 1):
        return "strided dgrad with dilation"
    forward = transposed(w)
    if w.stride != (1, 1) and launch.kernel.family != "sm80_strided_dgrad":
        return "stride above 1"
    if forward is None and launch.kernel.is_sm90:
        return "padding beyond the filter's reach"
    return rules.why_not(_transposed_launch(launch), forward or _phase(w), device)


def is_hopeful(config: KernelConfig, w: Workload, device: Device) -> bool:
    forward = transposed(w)
    return forward is None or rules.is_hopeful(config, forward, device)


def launches(config: KernelConfig, w: Workload, device: Device) -> Iterator[Launch]:
    forward = transposed(w)
    if forward is None:
        yield Launch(config)
    else:
        yield from rules.launches(config, forward, device)


def output_tiles(config: KernelConfig, w: Workload) -> int:
    forward = transposed(w)
    if forward is not None:
        return rules.output_tiles(config, forward)
    return rules.output_tiles(config, _phase(w)) * w.stride[0] * w.stride[1]


def reduction_tiles(config: KernelConfig, w: Workload) -> int:
    return rules.reduction_tiles(config, transposed(w) or _phase(w))


def workspace_bytes(launch: Launch, w: Workload) -> int:
    """Workspace of a launch; for stream-K an upper bound."""
    return workspace_bytes_of(launch, output_tiles(launch.kernel, w), w.n * w.h * w.w * w.c)


def _transposed_launch(launch: Launch) -> Launch:
    """The launch as a forward one: vector widths along C and K change places."""
    config = launch.kernel
    config = dataclasses.replace(config, align=config.align_out, align_out=config.align)
    return dataclasses.replace(launch, kernel=config)


def _phase(w: Workload) -> Workload:
    """A forward problem of the size of the largest phase of a strided dgrad."""
    sh, sw = w.stride
    return Workload(
        "fprop",
        w.n,
        -(-w.h // sh),
        -(-w.w // sw),
        w.k,
        w.c,
        -(-w.r // sh),
        -(-w.s // sw),
        padding=(w.r // sh, w.s // sw, w.r // sh, w.s // sw),
        dtype=w.dtype,
        out_dtype=w.out_dtype,
        acc_dtype=w.acc_dtype,
        math=w.math,
        epilogue=Epilogue(),
    )
