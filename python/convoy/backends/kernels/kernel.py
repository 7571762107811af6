"""Interface of a kernel library for compiler and backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

#: C++ types of operands, and their short names.
ELEMENT = {"float16": "__half", "bfloat16": "__nv_bfloat16", "float32": "float"}
SHORT = {"float16": "f16", "bfloat16": "bf16", "float32": "f32"}


class Kernel(Protocol):
    """A kernel library, compiled once for all workloads that fit. Hashable.

    Implementations are frozen dataclasses of compile-time choices; one that could not be compiled
    raises InvalidOption when it is made.
    """

    @property
    def name(self) -> str:
        """Unique among all kernels."""

    @property
    def label(self) -> str:
        """Unique among the kernels of one workload, as tables show it."""

    @property
    def header(self) -> str:
        """The header it is an instance of, as its path in ``codegen``."""

    @property
    def source(self) -> str:
        """The ``.cu`` text; equal for equal kernels."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of nvcc that decide its code, beside :data:`.compile.FLAGS`."""

    @property
    def build_bytes(self) -> int:
        """Peak memory of the compiler."""

    @property
    def uses_cutlass(self) -> bool:
        """Whether its header includes CUTLASS's."""

    @property
    def dtype(self) -> str:
        """Dtype of the operands."""

    def to_json(self) -> dict[str, object]:
        """The fields, JSON types only."""


K = TypeVar("K", bound=Kernel)


@dataclass(frozen=True)
class Launch(Generic[K]):
    """A kernel with its run-time choices.

    split_k   slices of the reduction
    swizzle   order of the tiles, or what else the kernel takes ``ConvoyShape.swizzle`` for;
              0 is the kernel's default
    """

    kernel: K
    split_k: int = 1
    swizzle: int = 0

    @property
    def label(self) -> str:
        """The kernel's label and the choices that are not the default."""
        split = f".split{self.split_k}" if self.split_k > 1 else ""
        return self.kernel.label + split + (f".swizzle{self.swizzle}" if self.swizzle else "")


def ceil_div(size: int, unit: int) -> int:
    """Return how many units it takes to hold a size."""
    return -(-size // unit)


def bool_literal(value: bool) -> str:
    """A bool as a C++ literal."""
    return "true" if value else "false"
