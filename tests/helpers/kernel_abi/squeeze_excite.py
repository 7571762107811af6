"""The kernel library of a squeeze-and-excitation block called from Python through its C ABI
(``convoy/squeeze_excite_abi.h``)."""

from __future__ import annotations

import ctypes

from convoy.ir.squeeze_excite import image_of
from convoy.ir.workload import Workload

from .library import Library, Shape
from .parts import clip, pointers, require


class Problem(ctypes.Structure):
    """``ConvoySqueezeExcite``."""

    _fields_ = [
        ("image", Shape),
        ("squeezed", ctypes.c_int32),
        ("squeeze_clip_min", ctypes.c_float),
        ("squeeze_clip_max", ctypes.c_float),
        ("gate_clip_min", ctypes.c_float),
        ("gate_clip_max", ctypes.c_float),
    ]

    @classmethod
    def of(cls, w: Workload, sm_count: int, swizzle: int = 0) -> Problem:
        """A block with a candidate's run-time choices."""
        block = require(w.squeeze_excite, w, "a squeeze-and-excitation block")
        return cls(
            Shape.of(image_of(w), sm_count, swizzle=swizzle),
            block.channels,
            *clip(block.squeeze_epilogue),
            *clip(block.gate_epilogue),
        )


class Operands(ctypes.Structure):
    """``ConvoySqueezeExciteOperands``: device addresses, None for what is not there."""

    _fields_ = pointers("x", "squeeze", "excite", "residual", "squeeze_bias", "excite_bias", "y")


class SqueezeExciteLibrary(Library):
    """A library of ``convoy/squeeze_excite_abi.h``."""

    kind = "squeeze_excite"
    prefix = "squeeze_excite_"
    abi = 1
