"""The kernels of ``codegen/hopper`` as plain data: dgrad, and all kernels there are."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from ....errors import InvalidOption
from ..emit import boolean
from .source import ELEMENT, SHORT, check_dtype, source_text
from .stem import StemDgradKernel, StemFpropKernel, StemWgradKernel

#: Bytes of shared memory that one block may use on sm_90.
SHARED_MEMORY = 232448
#: Largest stride_h * stride_w, and rows of a tile; limits of the headers.
MOST_PHASES = 9
LARGEST_TILE = 384
_BLOCK = 8192  # 64 rows of 128 bytes


@dataclass(frozen=True, order=True)
class DgradKernel:
    """One instance of ``dgrad_strided.cuh``.

    rows, columns  tile of a phase's matrix: pixels of dx, input channels
    pingpong       consumers take turns with whole tiles; otherwise they share one, an equal part of
                   the rows each
    slots          pieces of 64 rows and 64 channels that a consumer can have on the way to memory
    batch          pieces that a consumer writes between two barriers; divides slots
    consumers      warpgroups that multiply: 2, or 3 where they share a tile
    stages         depth of the load pipeline; 0 takes as many as fit
    swapped        consumers have 64 of a tile's columns each rather than a part of its rows
    later          a tile is stored under the next one's arithmetic (two consumers that share it)
    store_warps    warps of their own store the slots (later, batch 1): the copy engine only loads
    split          blocks of a cluster that share a tile's reduction (cooperative only)
    zeros          can write phases that no filter tap reaches (filter shorter than the stride)

    Raises InvalidOption for fields that the kernel cannot be compiled with.
    """

    rows: int
    columns: int
    pingpong: bool
    slots: int
    batch: int = 1
    consumers: int = 2
    stages: int = 0
    swapped: bool = False
    later: bool = False
    store_warps: bool = False
    zeros: bool = False
    split: int = 1
    dtype: str = "float16"

    family: ClassVar[str] = "dgrad_strided"
    most_stages: ClassVar[int] = 10

    def __post_init__(self) -> None:
        check_dtype(self.dtype)
        if self.consumers not in (2, 3) or (self.pingpong and self.consumers != 2):
            raise InvalidOption(f"{self.consumers} consumers", "2, or 3 that share a tile")
        if self.swapped and not self._can_be_swapped():
            raise InvalidOption(
                f"swapped, tile {self.rows}x{self.columns}",
                "64, 128 or 256 rows and 64 columns for each of the consumers, who share it",
            )
        alone = self.pingpong or self.split > 1 or self.consumers > 2
        if self.later and alone:
            raise InvalidOption("stores under the next tile", "two consumers that share a tile")
        if self.store_warps and (not self.later or self.batch > 1):
            raise InvalidOption("store warps", "stores under the next tile, in batches of 1")
        parts = 1 if self.pingpong or self.swapped else self.consumers
        blocks, rest = divmod(self.rows, 64 * parts)
        own = 64 if self.swapped else self.columns
        if rest or blocks < 1 or self.columns not in (64, 128, 256) or blocks * own > 256:
            raise InvalidOption(
                f"tile {self.rows}x{self.columns}",
                "64, 128 or 256 columns, and for a consumer 64 rows times at most 256 / columns",
            )
        if self.split < 1 or self.columns // 64 % self.split or (self.split > 1 and self.pingpong):
            raise InvalidOption(
                f"a split in {self.split}",
                f"1, or with the cooperative schedule a divisor of {self.columns // 64}",
            )
        if not 1 <= self.slots <= self.pieces:
            raise InvalidOption(f"{self.slots} slots", f"1 to {self.pieces}")
        whole = self.blocks if self.split > 1 else self.pieces
        if self.batch < 1 or self.slots % self.batch or whole % self.batch:
            raise InvalidOption(
                f"batches of {self.batch}", f"a divisor of {self.slots} slots and {whole} pieces"
            )
        if self.stages == 0:
            object.__setattr__(self, "stages", min(self._stages_that_fit(), self.most_stages))
        if not 2 <= self.stages <= self._stages_that_fit():
            raise InvalidOption(
                f"{self.stages} stages", f"2 to {self._stages_that_fit()} (shared memory)"
            )

    @property
    def blocks(self) -> int:
        """Blocks of 64 rows of one consumer warpgroup."""
        return self.rows // 64 // (1 if self.pingpong or self.swapped else self.consumers)

    @property
    def pieces(self) -> int:
        """Blocks of 64 rows and 64 channels of one consumer warpgroup."""
        return self.blocks * (1 if self.swapped else self.columns // 64)

    @property
    def stage_bytes(self) -> int:
        return (self.rows + self.columns) * 128

    @property
    def name(self) -> str:
        schedule = "pingpong" if self.pingpong else "swapped" if self.swapped else "cooperative"
        schedule += str(self.consumers) * (self.consumers > 2)
        zeros = f"_split{self.split}" * (self.split > 1) + "_zeros" * self.zeros
        zeros = "_later" * self.later + "_warps" * self.store_warps + zeros
        return (
            f"dgrad_strided_{self.rows}x{self.columns}_s{self.stages}x{self.slots}b{self.batch}"
            f"_{schedule}{zeros}_{SHORT[self.dtype]}"
        )

    @property
    def source(self) -> str:
        """The ``.cu`` text; equal for equal kernels."""
        numbers = (self.rows, self.columns, self.stages, self.slots, self.batch, self.consumers)
        arguments = [ELEMENT[self.dtype], *map(str, numbers)]
        flags = (self.pingpong, self.swapped, self.later, self.store_warps, self.zeros)
        arguments += map(boolean, flags)
        arguments += [str(self.split)]
        return source_text(self, "DgradConfig", arguments, "DgradStrided")

    def to_json(self) -> dict[str, Any]:
        return {"family": self.family, **dataclasses.asdict(self)}

    def _can_be_swapped(self) -> bool:
        shared = not self.pingpong and self.split == 1
        return shared and self.columns == 64 * self.consumers and self.rows in (64, 128, 256)

    def _stages_that_fit(self) -> int:
        """The layout of ``DgradConfig`` but for the stages: alignment, slots, zero tile, partial
        sums, barriers."""
        fixed = 1024 + self.consumers * self.slots * _BLOCK + _BLOCK * self.zeros
        own = self.pieces // self.split
        fixed += self.consumers * (self.split - 1) * own * 2 * _BLOCK
        fixed += (3 + 2 * self.slots * self.store_warps) * self.consumers * 8
        return (SHARED_MEMORY - fixed) // (self.stage_bytes + 16)


HopperKernel = DgradKernel | StemDgradKernel | StemFpropKernel | StemWgradKernel

_KINDS = (DgradKernel, StemDgradKernel, StemFpropKernel, StemWgradKernel)


def kernel_from_json(data: dict[str, Any]) -> HopperKernel:
    """Inverse of ``to_json``; raises InvalidOption on unknown families or fields."""
    fields = dict(data)
    family = fields.pop("family", None)
    for kind in _KINDS:
        if kind.family == family:
            try:
                return kind(**fields)
            except TypeError as error:
                raise InvalidOption(f"kernel description {data}", f"its fields ({error})") from None
    families = ", ".join(kind.family for kind in _KINDS)
    raise InvalidOption(f"kernel family {family!r}", f"one of {families}")
