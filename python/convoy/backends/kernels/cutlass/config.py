"""A CUTLASS kernel as plain data: its parameters checked, its source and flags, JSON."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

from ....errors import InvalidOption
from ....ir import fields as checks
from ....ir.activation import ACTIVATIONS
from ....ir.dtypes import DTYPE_BYTES, FLOAT_DTYPES
from .emit import emit, header_of
from .parameters import FAMILIES, ITERATORS, SCHEDULERS, SCHEDULES, KernelParameters

INT8_FAMILY = "sm80_int8_conv"
#: Bytes of shared memory that one block may use, by compute capability.
SHARED_MEMORY = {80: 166912, 86: 101376, 87: 166912, 89: 101376, 90: 232448}
#: Machine code for sm_90a alone, which has no compatible successor; PTX beside that of sm_80, which
#: the driver compiles for every later architecture.
_GENCODE = {
    80: "-gencode=arch=compute_80,code=[compute_80,sm_80]",
    90: "-gencode=arch=compute_90a,code=sm_90a",
}


@dataclass(frozen=True, order=True)
class KernelConfig(KernelParameters):
    """A valid combination of parameters, compiled once for all workloads that it supports.

    Raises InvalidOption if a field has another type or range or if fields contradict each other:
    the source is generated from these fields, which come from records and plans.
    """

    def __post_init__(self) -> None:
        checks.check_attributes(self, _FIELDS, "kernel", InvalidOption)
        if self.residual_last:
            self._check_residual_last()
        if self.op != "fprop":
            self._check_backward()
        if self.family == INT8_FAMILY or not {self.dtype, self.out_dtype} <= {*FLOAT_DTYPES}:
            self._check_integers()
        if self.is_sm90:
            self._check_sm90()
        else:
            self._check_sm80()
        if self.strided and not self.can_be_strided:
            raise InvalidOption(f"{self.name} of slices", "whole tiles of an sm90 convolution")

    @property
    def can_be_strided(self) -> bool:
        """Whether the same device code reads and writes slices of wider tensors."""
        fprop = self.family in ("sm90_conv", "sm90_gemm")
        return fprop and self.scheduler == "tiles" and not self.affine_relu

    def _check_residual_last(self) -> None:
        if not self.residual or self.activation == "none" or self.scheduler == "splitk":
            raise InvalidOption(
                f"residual_last with residual = {self.residual}, activation {self.activation!r}, "
                f"scheduler {self.scheduler}",
                "a residual behind an activation, in one kernel",
            )

    def _check_integers(self) -> None:
        results = {"int32": "none", "int8": "clip"}
        if (self.family, self.dtype) != (INT8_FAMILY, "int8") or self.out_dtype not in results:
            raise InvalidOption(
                f"{self.family} of {self.dtype}, {self.out_dtype}",
                f"{INT8_FAMILY} of int8, with a result in int32 or int8",
            )
        plain = not self.residual and not self.affine_relu
        activation = results[self.out_dtype]
        if not plain or self.activation != activation or self.scheduler != "tiles":
            raise InvalidOption(
                f"{self.family} with activation {self.activation}, residual = {self.residual}, "
                f"affine_relu = {self.affine_relu}, scheduler {self.scheduler}",
                f"activation {activation} of {self.out_dtype}, nothing else, and whole tiles",
            )

    def _check_backward(self) -> None:
        if (self.activation, self.residual, self.affine_relu) != ("none", False, False):
            raise InvalidOption(
                f"{self.family} with an epilogue", f"none: {self.op} has no epilogue"
            )
        if self.is_sm90 and DTYPE_BYTES[self.dtype] != 2:
            raise InvalidOption(f"{self.family} in {self.dtype}", "float16 or bfloat16")
        wanted = {"sm80_wgrad": "splitk", "sm80_dgrad": "tiles", "sm80_strided_dgrad": "tiles"}
        if self.scheduler != wanted.get(self.family, self.scheduler):
            raise InvalidOption(
                f"{self.family} with scheduler {self.scheduler}", wanted[self.family]
            )
        if self.has_own_epilogue:
            raise InvalidOption(f"{self.family} with stages of an epilogue", "(0, 0), 0 columns")

    def _check_sm90(self) -> None:
        if self.schedule not in SCHEDULES:
            raise InvalidOption(f"schedule {self.schedule!r}", f"one of {', '.join(SCHEDULES)}")
        m, n, k = self.tile
        if self.arch != 90:
            raise InvalidOption(f"{self.family} for sm_{self.arch}", "arch = 90")
        if m % (128 if self.schedule == "cooperative" else 64) or n % 8 or n > 256:
            raise InvalidOption(
                f"tile {m}x{n} with schedule {self.schedule}",
                "rows in multiples of 128 (cooperative) or 64, channels in multiples of 8 to 256",
            )
        if k * DTYPE_BYTES[self.dtype] % 128:
            raise InvalidOption(f"reduction tile of {k} {self.dtype}", "a multiple of 128 bytes")
        if self.scheduler == "streamk" and self.schedule != "cooperative":
            raise InvalidOption("stream-K with the pingpong schedule", "the cooperative schedule")
        if self.iterator != "optimized" or self.warp != (0, 0):
            raise InvalidOption(
                f"iterator {self.iterator}, warp tile {self.warp} in {self.family}",
                "neither: both belong to sm80_conv",
            )
        if self.has_own_epilogue:
            self._check_epilogue()

    def _check_epilogue(self) -> None:
        m, n, _ = self.tile
        loads, stores = self.epilogue_stages
        shape = f"epilogue stages {self.epilogue_stages}, {self.epilogue_columns} columns"
        if self.scheduler != "tiles":
            raise InvalidOption(f"{shape} with scheduler {self.scheduler}", "scheduler tiles")
        columns = self.epilogue_columns
        if columns < 16 or columns % 16 or n % columns:
            raise InvalidOption(shape, f"columns in multiples of 16 that divide {n}")
        # The kernel gives back at its end only as many stages as a tile has subtiles.
        subtiles = m * n // (self.epilogue_rows * columns)
        if not 1 <= stores <= subtiles + 1 or loads <= stores:
            raise InvalidOption(
                shape, f"1 to {subtiles + 1} stages for stores, and more than those for residuals"
            )

    def _check_sm80(self) -> None:
        if self.arch not in _GENCODE:
            raise InvalidOption(f"{self.family} for sm_{self.arch}", "arch 80 or 90")
        m, n, _ = self.tile
        if self.schedule or self.cluster != (1, 1) or self.scheduler == "streamk":
            raise InvalidOption(
                f"schedule {self.schedule!r}, cluster {self.cluster}, scheduler {self.scheduler}",
                "none of sm90's: sm80_conv has tiles and splitk",
            )
        if self.has_own_epilogue:
            raise InvalidOption(
                f"epilogue stages {self.epilogue_stages}, {self.epilogue_columns} columns",
                "neither: both belong to sm90",
            )
        if self.stages < 3 or min(self.warp) < 1 or m % self.warp[0] or n % self.warp[1]:
            raise InvalidOption(
                f"tile {m}x{n}, warp tile {self.warp}, {self.stages} stages",
                "warp tiles that divide the tile, and at least 3 stages",
            )
        spreads = self.iterator in ("fixed_channels", "few_channels")
        if self.scheduler == "splitk" and spreads:
            raise InvalidOption(f"split-K with iterator {self.iterator}", "optimized or analytic")
        if self.affine_relu and self.scheduler != "splitk":
            raise InvalidOption(
                "affine_relu in an sm80 kernel without split-K",
                "split-K, whose reduction writes both outputs, or an sm90 kernel",
            )

    @property
    def label(self) -> str:
        """:attr:`mechanics`: dtypes and epilogue are the workload's."""
        return self.mechanics

    @property
    def header(self) -> str:
        return header_of(self)

    @property
    def source(self) -> str:
        return emit(self)

    @property
    def flags(self) -> tuple[str, ...]:
        return (_GENCODE[self.arch], "--expt-relaxed-constexpr")

    @property
    def build_bytes(self) -> int:
        """Measured: sm80 0.6 GB, sm90 3.1 to 4.6 GB."""
        return (5 << 30) if self.is_sm90 else (1 << 30)

    @property
    def uses_cutlass(self) -> bool:
        return True

    def to_json(self) -> dict[str, object]:
        """The fields that differ from their defaults, JSON types only."""
        data = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                data[field.name] = list(value) if isinstance(value, tuple) else value
        return data

    @classmethod
    def from_json(cls, data: object) -> KernelConfig:
        """Inverse of :meth:`to_json`; raises InvalidOption on unknown or missing fields."""
        return checks.made(cls, data, _FIELDS, "kernel", InvalidOption, ("family", "tile"))


_EXTENT = checks.integer(0, 4096)
_FIELDS: dict[str, checks.Check] = {
    "family": checks.one_of(FAMILIES),
    "tile": checks.tuple_of(checks.integer(1, 4096), 3),
    "warp": checks.tuple_of(_EXTENT, 2),
    "stages": checks.integer(0, 64),
    "cluster": checks.tuple_of(checks.integer(1, 16), 2),
    "schedule": checks.one_of(("", *SCHEDULES)),
    "scheduler": checks.one_of(SCHEDULERS),
    "iterator": checks.one_of(ITERATORS),
    "align": checks.integer(1, 64),
    "align_out": checks.integer(1, 64),
    "dtype": checks.one_of(tuple(DTYPE_BYTES)),
    "out_dtype": checks.one_of(tuple(DTYPE_BYTES)),
    "activation": checks.one_of(ACTIVATIONS),
    "residual": checks.boolean,
    "affine_relu": checks.boolean,
    "residual_last": checks.boolean,
    "strided": checks.boolean,
    "arch": checks.integer(0, 1000),
    "epilogue_stages": checks.tuple_of(checks.integer(0, 64), 2),
    "epilogue_columns": _EXTENT,
}


def kernel_arch(device_arch: int) -> int:
    """The architecture whose kernels a device of compute capability ``device_arch`` / 10 runs."""
    return 90 if device_arch == 90 else 80


@functools.cache
def shared_memory(arch: int) -> int:
    """Bytes of shared memory that one block may use on this architecture."""
    return SHARED_MEMORY.get(arch, 101376)
