"""Kernel libraries of ``codegen/sm90/dgrad_strided.cuh`` as plain data, and their source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ....errors import InvalidOption
from ....ir import fields as checks
from ..kernel import ELEMENT, SHORT, bool_literal
from .source import DTYPE, EXTENT, Sm90Library

#: Bytes of shared memory that one block may use on sm_90.
SHARED_MEMORY = 232448
#: Largest stride_h * stride_w, and rows of a tile; limits of the headers.
MOST_PHASES = 9
LARGEST_TILE = 384
_BLOCK = 8192  # 64 rows of 128 bytes
# Fields of DgradOptions, in their order.
_OPTIONS = (
    *("rows", "columns", "stages", "epilogue_stages", "commit_group", "consumers"),
    *("pingpong", "swap_ab", "overlapped_epilogue", "zeros", "split"),
)


# Names of fields in records and plans, where they are others than here.
_IN_JSON = {
    "epilogue_stages": "slots",
    "commit_group": "batch",
    "swap_ab": "swapped",
    "overlapped_epilogue": "later",
}


@dataclass(frozen=True, order=True)
class DgradKernel(Sm90Library):
    """One instance of ``dgrad_strided.cuh``: ``DgradOptions`` of dgrad_config.cuh, and the type.

    rows, columns        tile of a phase's matrix: pixels of dx, input channels
    pingpong             consumers alternate with whole tiles; otherwise they share one, an equal
                         part of the rows each
    epilogue_stages      subtiles of 64 rows and 64 channels that a consumer has room for on their
                         way to memory
    commit_group         subtiles that a consumer writes between two barriers and commits together;
                         divides epilogue_stages
    consumers            warpgroups that multiply: 2, or 3 where they share a tile
    stages               depth of the load pipeline; 0 takes as many as fit
    swap_ab              consumers have 64 of a tile's columns each rather than a part of its rows
    overlapped_epilogue  a tile is stored under the next one's main loop (two consumers that share
                         it)
    zeros                can write phases that no filter tap reaches (a filter shorter than the
                         stride)
    split                blocks of a cluster that share a tile's reduction (cooperative only)

    Raises InvalidOption for fields that the kernel cannot be compiled with: this is where it is
    checked, the header repeats none of it.
    """

    rows: int
    columns: int
    pingpong: bool
    epilogue_stages: int
    commit_group: int = 1
    consumers: int = 2
    stages: int = 0
    swap_ab: bool = False
    overlapped_epilogue: bool = False
    zeros: bool = False
    split: int = 1
    dtype: str = "float16"

    family: ClassVar[str] = "dgrad_strided"
    fields: ClassVar[Mapping[str, checks.Check]] = {
        **dict.fromkeys(("rows", "columns", "epilogue_stages", "commit_group", "split"), EXTENT),
        "consumers": EXTENT,
        "stages": checks.integer(0, 4096),
        **dict.fromkeys(("pingpong", "swap_ab", "overlapped_epilogue", "zeros"), checks.boolean),
        "dtype": DTYPE,
    }
    most_stages: ClassVar[int] = 10

    def __post_init__(self) -> None:
        self.check_fields()
        if self.consumers not in (2, 3) or (self.pingpong and self.consumers != 2):
            raise InvalidOption(f"{self.consumers} consumers", "2, or 3 that share a tile")
        if self.swap_ab and not self._can_swap_ab():
            raise InvalidOption(
                f"swap_ab, tile {self.rows}x{self.columns}",
                "64, 128 or 256 rows and 64 columns for each of the consumers, who share it",
            )
        alone = self.pingpong or self.split > 1 or self.consumers > 2
        if self.overlapped_epilogue and alone:
            raise InvalidOption("overlapped_epilogue", "two consumers that share a tile")
        parts = 1 if self.pingpong or self.swap_ab else self.consumers
        blocks, rest = divmod(self.rows, 64 * parts)
        own = 64 if self.swap_ab else self.columns
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
        if not 1 <= self.epilogue_stages <= self.subtiles:
            raise InvalidOption(f"{self.epilogue_stages} epilogue stages", f"1 to {self.subtiles}")
        whole = self.blocks if self.split > 1 else self.subtiles
        group = self.commit_group
        if group < 1 or self.epilogue_stages % group or whole % group:
            raise InvalidOption(
                f"commit groups of {group}",
                f"a divisor of {self.epilogue_stages} epilogue stages and {whole} subtiles",
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
        return self.rows // 64 // (1 if self.pingpong or self.swap_ab else self.consumers)

    @property
    def subtiles(self) -> int:
        """Blocks of 64 rows and 64 channels of one consumer warpgroup."""
        return self.blocks * (1 if self.swap_ab else self.columns // 64)

    @property
    def stage_bytes(self) -> int:
        return (self.rows + self.columns) * 128

    @property
    def name(self) -> str:
        schedule = "pingpong" if self.pingpong else "swapped" if self.swap_ab else "cooperative"
        schedule += str(self.consumers) * (self.consumers > 2)
        zeros = f"_split{self.split}" * (self.split > 1) + "_zeros" * self.zeros
        zeros = "_later" * self.overlapped_epilogue + zeros
        return (
            f"dgrad_strided_{self.rows}x{self.columns}_s{self.stages}x{self.epilogue_stages}b{self.commit_group}"
            f"_{schedule}{zeros}_{SHORT[self.dtype]}"
        )

    @property
    def source(self) -> str:
        fields = {name: getattr(self, name) for name in _OPTIONS}
        literals = {k: bool_literal(v) if isinstance(v, bool) else v for k, v in fields.items()}
        options = "".join(f"    .{name} = {value},\n" for name, value in literals.items())
        return (
            f"// {self.name}\n"
            f'#include "{self.family}_library.cuh"\n\n'
            f"inline constexpr convoy::sm90::DgradOptions kOptions = {{\n{options}}};\n"
            f"using Config = convoy::sm90::DgradConfig<{ELEMENT[self.dtype]}, kOptions>;\n"
            f"using Kernel = convoy::sm90::DgradStrided<Config>;\n\n"
            f"CONVOY_EXPORT_SM90_KERNEL(Kernel)\n"
        )

    def to_json(self) -> dict[str, object]:
        return {_IN_JSON.get(name, name): value for name, value in super().to_json().items()}

    @classmethod
    def from_json(cls, data: dict[str, object]) -> DgradKernel:
        """Plans of earlier versions have ``store_warps``, an option that is gone, as false."""
        names = {in_json: name for name, in_json in _IN_JSON.items()}
        fields = {names.get(name, name): value for name, value in data.items()}
        if fields.get("store_warps") is False:
            del fields["store_warps"]
        return super().from_json(fields)

    def _can_swap_ab(self) -> bool:
        shared = not self.pingpong and self.split == 1
        return shared and self.columns == 64 * self.consumers and self.rows in (64, 128, 256)

    def _stages_that_fit(self) -> int:
        """The layout of ``DgradConfig`` but for the stages: alignment, epilogue stages, zero tile,
        partial sums, barriers."""
        fixed = 1024 + self.consumers * self.epilogue_stages * _BLOCK + _BLOCK * self.zeros
        own = self.subtiles // self.split
        fixed += self.consumers * (self.split - 1) * own * 2 * _BLOCK
        fixed += 3 * self.consumers * 8
        return (SHARED_MEMORY - fixed) // (self.stage_bytes + 16)
