"""The kernel library of a bottleneck called from Python through its C ABI
(``convoy/bottleneck_abi.h``)."""

from __future__ import annotations

import ctypes

from convoy.ir.bottleneck import parts
from convoy.ir.workload import Workload

from .library import Library, Shape
from .parts import clip, pointers, require


class Problem(ctypes.Structure):
    """``ConvoyBottleneck``."""

    _fields_ = [
        ("conv", Shape),
        ("expand", ctypes.c_int32),
        ("reduce", ctypes.c_int32),
        ("expand_clip_min", ctypes.c_float),
        ("expand_clip_max", ctypes.c_float),
        ("reduce_clip_min", ctypes.c_float),
        ("reduce_clip_max", ctypes.c_float),
    ]

    @classmethod
    def of(cls, w: Workload, sm_count: int, swizzle: int = 0) -> Problem:
        """A bottleneck with a candidate's run-time choices."""
        bottleneck = require(w.bottleneck, w, "a bottleneck")
        return cls(
            Shape.of(parts(w)[0], sm_count, swizzle=swizzle),
            *(bottleneck.expand, bottleneck.reduce),
            *clip(bottleneck.expand_epilogue),
            *clip(bottleneck.reduce_epilogue),
        )


class Operands(ctypes.Structure):
    """``ConvoyBottleneckOperands``: device addresses, None for what is not there."""

    _fields_ = pointers(
        *("x", "filter", "expand", "reduce", "residual"),
        *("bias", "expand_bias", "reduce_bias", "y", "z"),
    )


class BottleneckLibrary(Library):
    """A library of ``convoy/bottleneck_abi.h``."""

    kind = "bottleneck"
    prefix = "bottleneck_"
    abi = 1
