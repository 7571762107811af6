"""Kernel libraries of ``codegen/attention`` as plain data, and their source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ....errors import InvalidOption
from ....ir import fields as checks
from ....ir.dtypes import HALF_DTYPES
from ..instance import TemplateInstance, instance_from_json
from ..kernel import ELEMENT, SHORT

#: Elements of a head that the kernels are compiled for, at most; all of them are multiples of 16.
MOST_DIM = 128
#: GPUs that kernels are compiled for: compute capability 8.x, and 9.0.
ARCHES = (80, 90)
#: Warps along queries (16 each) and along keys, by queries of a block and keys of a tile.
_WARPS = {
    (16, 64): (1, 4), (16, 128): (1, 4), (32, 64): (2, 2), (32, 128): (2, 4), (64, 64): (4, 1),
    (128, 64): (8, 1),
}  # fmt: skip
TILES = tuple(_WARPS)


@dataclass(frozen=True, order=True)
class AttentionKernel(TemplateInstance):
    """One instance of ``attention.cuh``.

    dim, value_dim  elements of a head in q and k, and in v and o, rounded up to multiples of 16
    rows, key_tile  queries of a block, and keys of a step of its main loop: one of TILES
    dtype           of all operands but the bias
    arch            80 or 90: the GPU whose machine code it is

    Raises InvalidOption for other values.
    """

    dim: int
    value_dim: int
    rows: int
    key_tile: int = 64
    dtype: str = "float16"
    arch: int = 90

    folder: ClassVar[str] = "attention"
    family: ClassVar[str] = "attention"
    fields: ClassVar[Mapping[str, checks.Check]] = {
        **dict.fromkeys(("dim", "value_dim"), checks.integer(16, MOST_DIM)),
        **dict.fromkeys(("rows", "key_tile"), checks.integer(1, 1024)),
        "dtype": checks.one_of(HALF_DTYPES),
        "arch": checks.integer(1, 1000),
    }

    def __post_init__(self) -> None:
        self.check_fields()
        for name, size in (("dim", self.dim), ("value_dim", self.value_dim)):
            if size % 16:
                raise InvalidOption(f"{name} = {size}", "a multiple of 16")
        if (self.rows, self.key_tile) not in _WARPS:
            tiles = ", ".join(f"{rows} x {keys}" for rows, keys in TILES)
            raise InvalidOption(f"a tile of {self.rows} x {self.key_tile}", f"one of {tiles}")
        if self.arch not in ARCHES:
            raise InvalidOption(f"arch = {self.arch}", f"one of {', '.join(map(str, ARCHES))}")

    @property
    def threads(self) -> int:
        """Threads of a block."""
        row_warps, key_warps = _WARPS[self.rows, self.key_tile]
        return 32 * row_warps * key_warps

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block for many keys."""
        widest, both = max(self.dim, self.value_dim), self.dim + self.value_dim
        return 2 * (self.rows * (widest + 8) + 2 * self.key_tile * (both + 16))

    @property
    def name(self) -> str:
        """Unique among all kernels."""
        return f"sm{self.arch}_{self.label}"

    @property
    def label(self) -> str:
        value = f"v{self.value_dim}" if self.value_dim != self.dim else ""
        return f"attention_d{self.dim}{value}_{self.rows}x{self.key_tile}_{SHORT[self.dtype]}"

    @property
    def source(self) -> str:
        """The ``.cu`` text; equal for equal kernels."""
        warps = _WARPS[self.rows, self.key_tile]
        sizes = (self.dim, self.value_dim, *warps, self.key_tile)
        arguments = ", ".join([ELEMENT[self.dtype], *map(str, sizes)])
        return (
            f"// {self.name}\n"
            '#include "attention_library.cuh"\n\n'
            f"using Config = convoy::attention::Config<{arguments}>;\n\n"
            "CONVOY_EXPORT_ATTENTION(Config)\n"
        )

    @property
    def flags(self) -> tuple[str, ...]:
        return (f"-gencode=arch=compute_{self.arch},code=sm_{self.arch}",)

    @property
    def build_bytes(self) -> int:
        return 1 << 29


def kernel_from_json(data: object) -> AttentionKernel:
    """Inverse of ``to_json``; raises InvalidOption on other fields."""
    return instance_from_json(data, (AttentionKernel,))
