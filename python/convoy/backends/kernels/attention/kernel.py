"""The kernels of ``codegen/attention`` as plain data: what one library is, and its source."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....errors import InvalidOption
from ....ir import fields as checks

#: Elements of a head that the kernels are compiled for, at most; all of them are multiples of 16.
MOST_DIM = 128
#: GPUs that kernels are compiled for: compute capability 8.x, and 9.0.
ARCHES = (80, 90)
_ELEMENT = {"float16": "__half", "bfloat16": "__nv_bfloat16"}
_SHORT = {"float16": "f16", "bfloat16": "bf16"}
#: Warps along queries (16 each) and along keys, and keys of a tile, by queries of a block.
_WARPS = {128: (8, 1, 64), 64: (4, 1, 64), 32: (2, 2, 64), 16: (1, 4, 64)}
ROWS = tuple(_WARPS)


@dataclass(frozen=True, order=True)
class AttentionKernel:
    """One instance of ``attention.cuh``.

    dim, value_dim  elements of a head in q and k, and in v and o, rounded up to multiples of 16
    rows            queries of a block: 16, 32, 64 or 128
    dtype           of all operands but the bias
    arch            80 or 90: the GPU whose machine code it is

    Raises InvalidOption for other values.
    """

    dim: int
    value_dim: int
    rows: int = 64
    dtype: str = "float16"
    arch: int = 90

    def __post_init__(self) -> None:
        checks.check_attributes(self, _FIELDS, "attention kernel", InvalidOption)
        for name, size in (("dim", self.dim), ("value_dim", self.value_dim)):
            if size % 16:
                raise InvalidOption(f"{name} = {size}", "a multiple of 16")
        if self.rows not in _WARPS:
            raise InvalidOption(f"rows = {self.rows}", f"one of {', '.join(map(str, ROWS))}")
        if self.arch not in ARCHES:
            raise InvalidOption(f"arch = {self.arch}", f"one of {', '.join(map(str, ARCHES))}")

    @property
    def key_tile(self) -> int:
        """Keys of a step of its main loop."""
        return _WARPS[self.rows][2]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        row_warps, key_warps, _ = _WARPS[self.rows]
        return 32 * row_warps * key_warps

    @property
    def name(self) -> str:
        """Unique among all kernels."""
        return f"sm{self.arch}_{self.label}"

    @property
    def label(self) -> str:
        value = f"v{self.value_dim}" if self.value_dim != self.dim else ""
        return f"attention_d{self.dim}{value}_rows{self.rows}_{_SHORT[self.dtype]}"

    @property
    def header(self) -> str:
        return "attention/attention_library.cuh"

    @property
    def source(self) -> str:
        """The ``.cu`` text; equal for equal kernels."""
        sizes = (self.dim, self.value_dim, *_WARPS[self.rows])
        arguments = ", ".join([_ELEMENT[self.dtype], *map(str, sizes)])
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

    @property
    def uses_cutlass(self) -> bool:
        return False

    def to_json(self) -> dict[str, Any]:
        return {"family": "attention", **dataclasses.asdict(self)}


def kernel_from_json(data: Any) -> AttentionKernel:
    """Inverse of :meth:`AttentionKernel.to_json`; raises InvalidOption on other fields."""
    if not isinstance(data, dict):
        raise InvalidOption(f"kernel {reprlib.repr(data)}", "a JSON object")
    fields = dict(data)
    if (family := fields.pop("family", None)) != "attention":
        raise InvalidOption(f"kernel family {reprlib.repr(family)}", "attention")
    required = ("dim", "value_dim", "rows")
    return AttentionKernel(
        **checks.checked(fields, _FIELDS, "attention kernel", InvalidOption, required)
    )


_DIM = checks.integer(16, MOST_DIM)
_FIELDS: Mapping[str, checks.Check] = {
    "dim": _DIM,
    "value_dim": _DIM,
    "rows": checks.integer(1, 1024),
    "dtype": checks.one_of(tuple(_ELEMENT)),
    "arch": checks.integer(1, 1000),
}
