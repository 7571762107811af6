"""A CUTLASS kernel as plain data: what is compiled once and then serves every fitting workload."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ....errors import InvalidOption
from ....ir import fields as checks
from ....ir.activation import ACTIVATIONS
from ....ir.workload import DTYPE_BYTES
from .emit import emit, is_activated

#: Operation and architecture; the header is ``codegen/cutlass/FAMILY.cuh``, for the activations
#: that few kernels have ``codegen/cutlass/FAMILY_activated.cuh``.
Family = Literal[
    "sm80_conv",
    "sm90_conv",
    "sm90_gemm",
    "sm80_dgrad",
    "sm80_strided_dgrad",
    "sm90_dgrad",
    "sm90_dgrad_gemm",
    "sm80_wgrad",
    "sm90_wgrad",
]
FAMILIES: tuple[Family, ...] = get_args(Family)
SCHEDULES = ("cooperative", "pingpong")
#: How the output is divided among thread blocks. ``tiles``: whole output tiles; ``streamk``:
#: CUTLASS's stream-K; ``splitk``: equal slices of the reduction, added up by a second kernel.
SCHEDULERS = ("tiles", "streamk", "splitk")
ITERATORS = ("optimized", "analytic", "fixed_channels", "few_channels")

#: Bytes of shared memory that one block may use, by compute capability.
SHARED_MEMORY = {80: 166912, 86: 101376, 87: 166912, 89: 101376, 90: 232448}
#: Machine code for sm_90a alone, which has no compatible successor; PTX beside that of sm_80, which
#: the driver compiles for every later architecture.
_GENCODE = {
    80: "-gencode=arch=compute_80,code=[compute_80,sm_80]",
    90: "-gencode=arch=compute_90a,code=sm_90a",
}
_SHORT = {"float16": "f16", "bfloat16": "bf16", "float32": "f32"}


@dataclass(frozen=True, order=True)
class KernelConfig:
    """Everything that distinguishes one compiled kernel from another.

    tile        output rows, output columns, reduction depth of a thread block: N*P*Q, K, C*R*S
                (fprop), N*H*W, C, K*R*S (dgrad), K, C*R*S, N*P*Q (wgrad)
    warp        rows and channels of a warp (sm80 only)
    stages      depth of the copy pipeline; 0 on sm90 takes as many as fit
    cluster     thread blocks along rows and columns that share loads (sm90 only)
    align       vector width in elements along C; ``align_out`` along K
    dtype       of the operands; float32 means tf32 arithmetic
    out_dtype   of y, y2, residual, bias, scale and shift
    arch        90 for Hopper, 80 for every other architecture (see :func:`kernel_arch`)
    epilogue_stages   subtiles of the output that the epilogue has under way (sm90 with whole tiles
                only): residuals in shared memory, stores; (0, 0) leaves both to CUTLASS
    residual_last     the residual is added behind the activation, as in ``Epilogue``
    epilogue_columns  channels of such a subtile, which has 128 rows (cooperative) or 64; 0: 32

    A bias needs no configuration of its own: every kernel takes one, or a null pointer.
    Raises InvalidOption where a field is of another type or range, or fields contradict each other:
    the source is made of these fields, which come from records and plans.
    """

    family: Family
    tile: tuple[int, int, int]
    warp: tuple[int, int] = (0, 0)
    stages: int = 0
    cluster: tuple[int, int] = (1, 1)
    schedule: str = ""
    scheduler: str = "tiles"
    iterator: str = "optimized"
    align: int = 8
    align_out: int = 8
    dtype: str = "float16"
    out_dtype: str = "float16"
    activation: str = "none"
    residual: bool = False
    affine_relu: bool = False
    arch: int = 90
    epilogue_stages: tuple[int, int] = (0, 0)
    epilogue_columns: int = 0
    residual_last: bool = False

    def __post_init__(self) -> None:
        checks.check_attributes(self, _FIELDS, "kernel", InvalidOption)
        if self.residual_last:
            self._check_residual_last()
        if self.op != "fprop":
            self._check_backward()
        if self.is_sm90:
            self._check_sm90()
        else:
            self._check_sm80()

    def _check_residual_last(self) -> None:
        if not self.residual or self.activation == "none" or self.scheduler == "splitk":
            raise InvalidOption(
                f"residual_last with residual = {self.residual}, activation {self.activation!r}, "
                f"scheduler {self.scheduler}",
                "a residual behind an activation, in one kernel",
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
        return f"cutlass/{self.family}{'_activated' * is_activated(self)}.cuh"

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

    @property
    def is_sm90(self) -> bool:
        return self.family.startswith("sm90")

    @property
    def op(self) -> str:
        """fprop, dgrad or wgrad."""
        return next((op for op in ("dgrad", "wgrad") if op in self.family), "fprop")

    @property
    def has_own_epilogue(self) -> bool:
        """Whether stages and columns of the epilogue are given, not left to CUTLASS."""
        return self.epilogue_stages != (0, 0) or self.epilogue_columns != 0

    @property
    def epilogue_rows(self) -> int:
        """Rows of an epilogue subtile (sm90 only)."""
        return 128 if self.schedule == "cooperative" else 64

    @property
    def threads(self) -> int:
        """Threads of a block."""
        if self.is_sm90:
            return 384  # one producer and two consumer warpgroups
        m, n, _ = self.tile
        return 32 * (m // self.warp[0]) * (n // self.warp[1])

    @property
    def stage_bytes(self) -> int:
        """Shared memory of one pipeline stage."""
        m, n, k = self.tile
        return (m + n) * k * DTYPE_BYTES[self.dtype]

    @property
    def least_shared_bytes(self) -> int:
        """Shared memory below which the kernel cannot exist: two stages and the epilogue's tiles
        on sm90 (an estimate from above), all stages or the epilogue on sm80."""
        if not self.is_sm90:
            return self.stages * self.stage_bytes
        stages = self.stages or 2
        out = 4 if self.scheduler == "splitk" else DTYPE_BYTES[self.out_dtype]
        if self.has_own_epilogue:
            loads, stores = self.epilogue_stages
            subtiles = (loads if self.residual else stores) + stores * self.affine_relu
            subtile_bytes = self.epilogue_rows * self.epilogue_columns * out
        else:
            subtiles = 4 * (1 + self.residual + self.affine_relu)
            subtile_bytes = self.epilogue_rows * 32 * out
        return stages * self.stage_bytes + subtiles * subtile_bytes + 4096

    @property
    def mechanics(self) -> str:
        """Name without dtypes and epilogue, e.g. ``sm90_conv_128x256x64_c2x1_cooperative``."""
        parts = [self.family, "x".join(map(str, self.tile))]
        if self.warp != (0, 0):
            parts.append("w" + "x".join(map(str, self.warp)))
        if self.stages:
            parts.append(f"s{self.stages}")
        if self.cluster != (1, 1):
            parts.append("c" + "x".join(map(str, self.cluster)))
        parts += [self.schedule] if self.schedule else []
        parts += [self.scheduler] if self.scheduler != "tiles" else []
        if self.has_own_epilogue:
            loads, stores = self.epilogue_stages
            parts.append(f"e{loads}-{stores}x{self.epilogue_columns}")
        parts += [self.iterator] if self.iterator != "optimized" else []
        if (self.align, self.align_out) != (8, 8):
            parts.append(f"a{self.align}-{self.align_out}")
        return "_".join(parts)

    @property
    def name(self) -> str:
        """Unique name: mechanics, dtypes, epilogue, architecture where it is not 90."""
        parts = [self.mechanics, _SHORT[self.dtype], _SHORT[self.out_dtype]]
        parts += ["residual"] * (self.residual and not self.residual_last)
        parts += [self.activation] if self.activation != "none" else []
        parts += ["residual"] * self.residual_last
        parts += ["affinerelu"] * self.affine_relu
        parts += [f"sm{self.arch}"] if self.arch != 90 else []
        return "_".join(parts)

    def to_json(self) -> dict[str, Any]:
        """The fields that differ from their defaults, JSON types only."""
        data = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                data[field.name] = list(value) if isinstance(value, tuple) else value
        return data

    @classmethod
    def from_json(cls, data: Any) -> KernelConfig:
        """Inverse of :meth:`to_json`; raises InvalidOption on unknown or missing fields."""
        return cls(**checks.checked(data, _FIELDS, "kernel", InvalidOption, ("family", "tile")))


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
