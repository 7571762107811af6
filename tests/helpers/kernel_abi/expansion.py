"""The kernel library of an expansion called from Python through its C ABI
(``convoy/expansion_abi.h``)."""

from __future__ import annotations

import ctypes
import dataclasses

from convoy.ir.workload import Workload

from .library import Library, Shape
from .parts import clip, pointers, require


class Problem(ctypes.Structure):
    """``ConvoyExpansion``."""

    _fields_ = [
        ("conv", Shape),
        ("channels", ctypes.c_int32),
        ("clip_min", ctypes.c_float),
        ("clip_max", ctypes.c_float),
    ]

    @classmethod
    def of(cls, w: Workload, sm_count: int, swizzle: int = 0) -> Problem:
        """An expansion with a candidate's run-time choices."""
        expansion = require(w.expansion, w, "an expansion")
        depthwise = dataclasses.replace(w, op="fprop", expansion=None)
        return cls(
            Shape.of(depthwise, sm_count, swizzle=swizzle),
            *(expansion.channels, *clip(expansion.epilogue)),
        )


class Operands(ctypes.Structure):
    """``ConvoyExpansionOperands``: device addresses, None for what is not there."""

    _fields_ = pointers("x", "filter", "expand", "expand_bias", "bias", "y")


class ExpansionLibrary(Library):
    """A library of ``convoy/expansion_abi.h``."""

    kind = "expansion"
    prefix = "expansion_"
    abi = 1
