"""The implicit GEMM of ``codegen/sm90`` for small batches: libraries, rules and launches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ....ir import fields as checks
from ....ir.device import Device
from ....ir.dtypes import DTYPE_BYTES
from ....ir.workload import Workload
from . import source
from .source import Sm90Library

#: Of ``ConvoyShape.swizzle``, in the order of ``Activation`` in depthwise/epilogue.cuh.
ACTIVATIONS = ("none", "relu", "clip", "sigmoid", "silu")
#: Blocks of a cluster, which share the reduction.
SPLITS = (1, 2, 4, 8)
#: Elements of y for which the kernel is meant: some tiles for each SM.
MOST_OUTPUTS = 1 << 22
#: Bytes of a pixel or filter that a step of the reduction takes.
STEP_BYTES = 128
ELEMENT = {**source.ELEMENT, "float32": "float", "tf32": "convoy::sm90::Tf32"}
SHORT = {**source.SHORT, "float32": "f32", "tf32": "tf32"}


class Tile(NamedTuple):
    """Output pixels and channels of a cluster."""

    rows: int
    columns: int


#: As ``kSmallConvTiles`` in small_conv_library.cuh.
TILES = (Tile(64, 32), Tile(64, 64), Tile(64, 128), Tile(128, 32), Tile(128, 64))


@dataclass(frozen=True, order=True)
class SmallConvKernel(Sm90Library):
    """One library for all sizes, tiles and epilogues of a dtype.

    float32 is multiplied as it is, in three products; with tf32 the operands are float32 too, but
    rounded.
    """

    dtype: str = "float16"

    family: ClassVar[str] = "small_conv"
    fields: ClassVar[Mapping[str, checks.Check]] = {"dtype": checks.one_of(tuple(ELEMENT))}

    def __post_init__(self) -> None:
        self.check_fields()

    @property
    def name(self) -> str:
        return f"small_conv_{SHORT[self.dtype]}"

    @property
    def source(self) -> str:
        """The ``.cu`` text; equal for equal kernels."""
        return (
            f"// {self.name}\n"
            f'#include "{self.family}_library.cuh"\n\n'
            f"using Kernel = convoy::sm90::SmallConv<{ELEMENT[self.dtype]}>;\n\n"
            "CONVOY_EXPORT_SMALL_CONV(Kernel)\n"
        )


def kernel_of(w: Workload) -> SmallConvKernel:
    """The kernel for operands as the workload has them."""
    return SmallConvKernel("tf32" if w.math == "tf32" else w.dtype)


def objections(w: Workload) -> Iterator[tuple[str, str]]:
    """(reason, remedy) of what rules the kernel out, beside what all kernels of the family need."""
    if w.c % 8:
        yield f"C = {w.c}", "pad C to a multiple of 8"
    outputs = w.n * w.p * w.q * w.k
    if outputs > MOST_OUTPUTS:
        yield f"{outputs} outputs: at most {MOST_OUTPUTS}", "use the cudnn or cutlass backend"
    if max(w.stride) > 8:
        yield f"stride {w.stride[0]}x{w.stride[1]}: at most 8", "use the cudnn backend"
    e = w.epilogue
    if e.affine_relu or e.residual_last or e.activation not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS[1:])
        yield f"epilogue {e.name}: only residual, bias and {known}", "use the cutlass backend"
    reach = [(size - 1) * step for size, step in zip((w.r, w.s), w.dilation, strict=True)]
    (top, left, bottom, right) = w.padding
    corners = (top, left, bottom - reach[0], right - reach[1])
    if max(reach) > 255 or max(map(abs, corners)) > 127:
        yield "filter or padding beyond TMA's range", "use the cudnn backend"


def choices(swizzle: int) -> tuple[int, int, str] | None:
    """(tile, blocks of a cluster, activation) of a swizzle; None for one that stands for none."""
    place, activation = divmod(swizzle, len(ACTIVATIONS))
    tile, split = divmod(place, len(SPLITS))
    return (tile, SPLITS[split], ACTIVATIONS[activation]) if tile < len(TILES) else None


def swizzle_of(tile: int, split: int, activation: str) -> int:
    """Inverse of :func:`choices`."""
    place = tile * len(SPLITS) + SPLITS.index(split)
    return place * len(ACTIVATIONS) + ACTIVATIONS.index(activation)


def why_not(kernel: SmallConvKernel, swizzle: int, w: Workload) -> str:
    """Return why a launch cannot run a workload without objections; empty if it can."""
    chosen = choices(swizzle)
    if kernel != kernel_of(w) or w.op not in ("fprop", "matmul"):
        return f"{kernel.name} is of another operation or dtype"
    if chosen is None or chosen[2] != w.epilogue.activation:
        return f"swizzle {swizzle} stands for no tile, or for another activation"
    return "" if chosen[1] <= steps(w) else f"{steps(w)} steps for {chosen[1]} blocks"


def steps(w: Workload) -> int:
    """Steps of the reduction: one filter tap and 128 bytes of channels each."""
    return w.r * w.s * -(-w.c * DTYPE_BYTES[w.dtype] // STEP_BYTES)


def swizzles(w: Workload, device: Device) -> list[int]:
    """All tiles and splits of a workload, best guess first."""
    found = [
        (guess_us(tile, split, w, device), swizzle_of(number, split, w.epilogue.activation))
        for number, tile in enumerate(TILES)
        for split in SPLITS
        if split <= steps(w)
    ]
    return [swizzle for _, swizzle in sorted(found)]


#: Fitted to ResNet-50's layers at N = 1 and 8 on an H200, in microseconds: a launch, a wave, a step
#: and what each row and column of the tile adds to it, the exchange of sums. Of the first four
#: guesses the best is within 4% (geometric mean) of the best of all.
_LAUNCH_US, _WAVE_US, _STEP_US, _ROW_US, _COLUMN_US, _SPLIT_US = 3.3, 0.8, 0.03, 9e-4, 3.2e-3, 0.1


def guess_us(tile: Tile, split: int, w: Workload, device: Device) -> float:
    """Time of a launch that starts when its predecessor has ended."""
    clusters = -(-w.k // tile.columns) * -(-w.n * w.p * w.q // tile.rows)
    waves = max(1.0, clusters * split / device.sm_count)
    step = _STEP_US + tile.rows * _ROW_US + tile.columns * _COLUMN_US
    exchange = _SPLIT_US if split > 1 else 0.0
    return _LAUNCH_US + waves * (-(-steps(w) // split) * step + _WAVE_US) + exchange
