"""The kernel library of an expansion called from Python through its C ABI
(``convoy/expansion_abi.h``).

For checks and tests: the hot path is the C++ runtime's.
"""

from __future__ import annotations

import ctypes
import dataclasses

from ....errors import InvalidOption
from ....ir.workload import Workload
from ..library import Library, Shape


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
        expansion = w.expansion
        if expansion is None:
            raise InvalidOption(f"workload {w.key}", "an expansion")
        depthwise = dataclasses.replace(w, op="fprop", expansion=None)
        inner = expansion.epilogue
        return cls(
            Shape.of(depthwise, sm_count, swizzle=swizzle),
            *(expansion.channels, inner.alpha or inner.clip_min, inner.clip_max),
        )


class Operands(ctypes.Structure):
    """``ConvoyExpansionOperands``: device addresses, None for what is not there."""

    _fields_ = [
        (name, ctypes.c_void_p) for name in ("x", "filter", "expand", "expand_bias", "bias", "y")
    ]


class ExpansionLibrary(Library):
    """A library of ``convoy/expansion_abi.h``."""

    kind = "expansion"
    prefix = "expansion_"
    abi = 1
