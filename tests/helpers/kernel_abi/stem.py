"""A stem's kernel library called from Python through its C ABI (``convoy/stem_abi.h``)."""

from __future__ import annotations

import ctypes
import dataclasses

from convoy.ir.workload import Workload

from .library import Library, Shape
from .parts import require

_FIELDS = (
    *("channels", "channels_last", "is_float32", "pool_h", "pool_w"),
    *("pool_stride_h", "pool_stride_w", "pool_top", "pool_left", "p", "q"),
)


class Problem(ctypes.Structure):
    """``ConvoyStem``."""

    _fields_ = [("conv", Shape), *((name, ctypes.c_int32) for name in _FIELDS)]

    @classmethod
    def of(cls, w: Workload, sm_count: int, swizzle: int = 0) -> Problem:
        """A stem with a candidate's run-time choices."""
        stem = require(w.stem, w, "a stem")
        convolution = dataclasses.replace(w, op="fprop", stem=None)
        return cls(
            Shape.of(convolution, sm_count, swizzle=swizzle),
            *(stem.channels, stem.channels_last, stem.dtype == "float32", *stem.window),
            *(*stem.stride, *stem.padding[:2], *stem.pooled(w.p, w.q)),
        )


class StemLibrary(Library):
    """A library of ``convoy/stem_abi.h``."""

    kind = "stem"
    prefix = "stem_"
    abi = 1
