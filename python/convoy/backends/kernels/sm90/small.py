"""The implicit GEMM of ``codegen/sm90`` for small batches: libraries, rules and launches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeVar

from ....errors import InvalidOption
from ....ir import fields as checks
from ....ir.activation import ACTIVATIONS
from ....ir.device import Device
from ....ir.dtypes import DTYPE_BYTES
from ....ir.workload import Workload
from .. import kernel
from ..cutlass.emit import GELU16, activation_literal, is_gelu16
from .source import Sm90Library

T = TypeVar("T")

#: Of ``ConvoyShape.swizzle``, in the order of ``Activation`` in depthwise/epilogue.cuh. For each
#: other activation, and for residuals behind one, there is a library.
CHOSEN = ("none", "relu", "clip", "sigmoid", "silu")
#: Blocks of a cluster, which share the reduction.
SPLITS = (1, 2, 4, 8)
#: Elements of y for which the kernel is meant: some tiles for each SM, and more of them in float32,
#: for which others have no tensor cores.
MOST_OUTPUTS, MOST_EXACT_OUTPUTS = 1 << 23, 1 << 24
#: Bytes of a pixel or filter that a step of the reduction takes.
STEP_BYTES = 128
ELEMENT = {**kernel.ELEMENT, "tf32": "convoy::sm90::Tf32"}
SHORT = {**kernel.SHORT, "tf32": "tf32"}


class Tile(NamedTuple):
    """Output pixels and channels of a cluster, and the parts of the reduction that warpgroups of a
    block share."""

    rows: int
    columns: int
    parts: int = 1


#: As ``kSmallConvTiles`` in small_conv_library.cuh.
TILES = (
    Tile(64, 32), Tile(64, 64), Tile(64, 128), Tile(128, 32), Tile(128, 64),
    Tile(64, 32, 2), Tile(64, 64, 2),
)  # fmt: skip
#: Columns of a tile for which the registers of exact sums suffice.
MOST_EXACT_COLUMNS = 64


@dataclass(frozen=True, order=True)
class SmallConvKernel(Sm90Library):
    """A library for all sizes and tiles of a dtype.

    float32 is multiplied as it is, in three products; with tf32 the operands are float32 too, but
    rounded. Without an ``activation`` a launch has one of :data:`CHOSEN`, in front of which a
    residual is added.
    """

    dtype: str = "float16"
    activation: str = ""
    residual_last: bool = False

    family: ClassVar[str] = "small_conv"
    template: ClassVar[str] = "SmallConv"
    fields: ClassVar[Mapping[str, checks.Check]] = {
        "dtype": checks.one_of(tuple(ELEMENT)),
        "activation": checks.one_of(("", *ACTIVATIONS[1:])),
        "residual_last": checks.boolean,
    }

    def __post_init__(self) -> None:
        self.check_fields()
        if self.activation in CHOSEN[1:] and not self.residual_last:
            raise InvalidOption(f"{self.activation} alone", "a choice of the launch")
        if self.residual_last and not self.activation:
            raise InvalidOption("residual_last", "an activation before the residual")

    @property
    def name(self) -> str:
        parts = [self.family, SHORT[self.dtype], self.activation]
        return "_".join(filter(None, [*parts, "residual" * self.residual_last]))

    @property
    def header(self) -> str:
        return f"{self.folder}/{self.family}{'_activated' * bool(self.activation)}_library.cuh"

    @property
    def source(self) -> str:
        """The ``.cu`` text; equal for equal kernels."""
        arguments, more = ELEMENT[self.dtype], ""
        if self.activation:
            activation = (self.activation, self.residual_last, self.dtype)
            arguments += f", convoy::sm90::FixedActivation<{activation_literal(*activation)}>"
            more = f'#include "../cutlass/{GELU16}"\n' * is_gelu16(*activation)
        return (
            f"// {self.name}\n"
            f'#include "{self.header.removeprefix(self.folder + "/")}"\n'
            f"{more}\n"
            f"using Kernel = convoy::sm90::{self.template}<{arguments}>;\n\n"
            "CONVOY_EXPORT_SMALL_CONV(Kernel)\n"
        )

    def to_json(self) -> dict[str, object]:
        fields = super().to_json()
        return fields if self.activation else {name: fields[name] for name in ("family", "dtype")}


def kernel_of(w: Workload) -> SmallConvKernel:
    """The kernel for operands and the epilogue as the workload has them."""
    dtype = "tf32" if w.math == "tf32" else w.dtype
    last = w.epilogue.residual_last
    if w.epilogue.activation in CHOSEN and not last:
        return SmallConvKernel(dtype)
    return SmallConvKernel(dtype, w.epilogue.activation, last)


def objections(w: Workload) -> Iterator[tuple[str, str]]:
    """(reason, remedy) of what rules the kernel out, beside what all kernels of the family need."""
    if w.c % 8:
        yield f"C = {w.c}", "pad C to a multiple of 8"
    if max(w.stride) > 8:
        yield f"stride {w.stride[0]}x{w.stride[1]}: at most 8", "use the cudnn backend"
    if w.epilogue.affine_relu:
        yield f"epilogue {w.epilogue.name}: a second result", "use the cutlass backend"
    reach = [(size - 1) * step for size, step in zip((w.r, w.s), w.dilation, strict=True)]
    (top, left, bottom, right) = w.padding
    corners = (top, left, bottom - reach[0], right - reach[1])
    if max(reach) > 255 or max(map(abs, corners)) > 127:
        yield "filter or padding beyond TMA's range", "use the cudnn backend"


def too_large(w: Workload) -> str:
    """Return why a problem is too large for kernels for small batches; empty if it is not."""
    outputs = w.n * w.p * w.q * w.k
    most = MOST_EXACT_OUTPUTS if _is_exact(w) else MOST_OUTPUTS
    return f"{outputs} outputs: at most {most}" if outputs > most else ""


def choices(swizzle: int, tiles: int = len(TILES)) -> tuple[int, int, str] | None:
    """(tile, blocks of a cluster, activation) of a swizzle; None for one that stands for none."""
    place, activation = divmod(swizzle, len(CHOSEN))
    tile, split = divmod(place, len(SPLITS))
    return (tile, SPLITS[split], CHOSEN[activation]) if tile < tiles else None


def swizzle_of(tile: int, split: int, activation: str) -> int:
    """Inverse of :func:`choices`."""
    place = tile * len(SPLITS) + SPLITS.index(split)
    return place * len(CHOSEN) + CHOSEN.index(activation)


def tile_of(swizzle: int, w: Workload, tiles: Sequence[T]) -> tuple[T, int] | None:
    """(tile, blocks of a cluster) of a swizzle; None for one that stands for none, or for another
    activation than the launch has to choose."""
    found = choices(swizzle, len(tiles))
    return (tiles[found[0]], found[1]) if found is not None and found[2] == chosen(w) else None


def why_not(kernel: SmallConvKernel, swizzle: int, w: Workload) -> str:
    """Return why a launch cannot run a workload without objections; empty if it can."""
    if kernel != kernel_of(w) or w.op not in ("fprop", "matmul"):
        return f"{kernel.name} is of another operation, dtype or epilogue"
    if (found := tile_of(swizzle, w, TILES)) is None:
        return no_tile(swizzle)
    if reason := too_large(w):
        return reason
    tile, split = found
    if not _fits(tile, w):
        return f"{tile} in float32"
    parts = split * tile.parts
    return "" if parts <= steps(w) else f"{steps(w)} steps in {parts} parts"


def no_tile(swizzle: int) -> str:
    """Return what is wrong with a swizzle for which :func:`tile_of` finds nothing."""
    return f"swizzle {swizzle} stands for no tile, or for another activation"


def _is_exact(w: Workload) -> bool:
    return w.dtype == "float32" and w.math != "tf32"


def _fits(tile: Tile, w: Workload) -> bool:
    return not _is_exact(w) or (tile.columns <= MOST_EXACT_COLUMNS and tile.parts == 1)


def chosen(w: Workload) -> str:
    """The activation that a launch chooses."""
    return "none" if kernel_of(w).activation else w.epilogue.activation


def steps(w: Workload) -> int:
    """Steps of the reduction: one filter tap and 128 bytes of channels each."""
    return w.r * w.s * -(-w.c * DTYPE_BYTES[w.dtype] // STEP_BYTES)


def guesses(w: Workload, device: Device) -> Iterator[tuple[float, int]]:
    """(time, swizzle) of all tiles and splits of a workload."""
    for number, tile in enumerate(TILES):
        for split in SPLITS:
            if _fits(tile, w) and split * tile.parts <= steps(w):
                yield guess_us(tile, split, w, device), swizzle_of(number, split, chosen(w))


#: Fitted to ResNet-50's layers at N = 1, 3 and 8 on an H200, within 11%, in microseconds: a launch,
#: what each row and column of the tile adds to a step and each output to a wave, a second part of
#: the reduction in each block, the exchange of sums. Of 910 recorded workloads the first guess
#: takes 4% longer than the best of all that were measured, the best of the first four 0.6%.
_LAUNCH_US, _ROW_US, _COLUMN_US, _OUTPUT_US, _PART_US, _SPLIT_US = (
    1.9, 1.5e-3, 1.7e-3, 1.7e-4, 0.22, 1.2,
)  # fmt: skip


def guess_us(tile: Tile, split: int, w: Workload, device: Device) -> float:
    """Time of a launch that starts when its predecessor has ended."""
    clusters = -(-w.k // tile.columns) * -(-w.n * w.p * w.q // tile.rows)
    waves = max(1.0, clusters * split / device.sm_count)
    step = tile.rows * _ROW_US + tile.columns * _COLUMN_US + (tile.parts - 1) * _PART_US
    in_turn = -(-steps(w) // (split * tile.parts))
    exchange = _SPLIT_US if split > 1 else 0.0
    return _LAUNCH_US + waves * (in_turn * step + tile.rows * tile.columns * _OUTPUT_US) + exchange
