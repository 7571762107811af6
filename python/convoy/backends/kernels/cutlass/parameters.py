"""Compile-time parameters of a CUTLASS kernel, its names and the resources that it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from ....ir.dtypes import DTYPE_BYTES

#: Operation and architecture; the header is ``codegen/cutlass/FAMILY.cuh``, for the activations
#: that few kernels have ``codegen/cutlass/FAMILY_activated.cuh``.
Family = Literal[
    "sm80_conv",
    "sm80_int8_conv",
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

_SHORT = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "int8": "s8", "int32": "s32"}


@dataclass(frozen=True, order=True)
class KernelParameters:
    """Everything that distinguishes one compiled kernel from another.

    tile        output rows, output columns, reduction depth of a thread block: N*P*Q, K, C*R*S
                (fprop), N*H*W, C, K*R*S (dgrad), K, C*R*S, N*P*Q (wgrad)
    warp        rows and channels of a warp (sm80 only)
    stages      depth of the copy pipeline; 0 on sm90 takes as many as fit
    cluster     thread blocks along rows and columns that share loads (sm90 only)
    align       vector width in elements along C; ``align_out`` along K
    dtype       of the operands; float32 means tf32 arithmetic, int8 exact sums in int32
    out_dtype   of y, y2, residual, bias, scale and shift
    arch        90 for Hopper, 80 for every other architecture (see :func:`kernel_arch`)
    epilogue_stages   subtiles of the output that the epilogue has under way (sm90 with whole tiles
                only): residuals in shared memory, stores; (0, 0) leaves both to CUTLASS
    residual_last     the residual is added behind the activation, as in ``Epilogue``
    epilogue_columns  channels of such a subtile, which has 128 rows (cooperative) or 64; 0: 32
    strided     rows of its operands may lie further apart than their channels; the same device
                code (sm90 fprop of whole tiles and one result only)

    A bias needs no parameter: every kernel takes one, or a null pointer.
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
    strided: bool = False

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
        parts += ["strided"] * self.strided
        return "_".join(parts)
