"""An attention library called from Python through its C ABI (``convoy/attention_abi.h``)."""

from __future__ import annotations

import ctypes

from convoy.errors import InvalidOption
from convoy.ir.attention import RowView
from convoy.ir.workload import Workload

from .library import Library


class View(ctypes.Structure):
    """``ConvoyAttentionView``."""

    _fields_ = [("offset", ctypes.c_int64), ("strides", ctypes.c_int64 * 4)]

    @classmethod
    def of(cls, view: RowView) -> View:
        return cls(view.offset, (ctypes.c_int64 * 4)(*view.strides))


class Problem(ctypes.Structure):
    """``ConvoyAttention``."""

    _fields_ = [
        *(
            (name, ctypes.c_int32)
            for name in (
                *("outer", "batch", "heads", "queries", "keys", "dim", "value_dim"),
                *("bias", "causal", "zeros"),
            )
        ),
        ("scale", ctypes.c_float),
        *((f"{name}_view", View) for name in ("q", "k", "v", "o", "bias")),
    ]

    @classmethod
    def of(cls, w: Workload) -> Problem:
        """A workload of attention."""
        a = w.attention
        if a is None:
            raise InvalidOption(f"workload {w.key}", "attention")
        bias = 0 if not a.bias.shape else 2 if a.bias_dtype == "float32" else 1
        return cls(
            *(a.outer, w.n // a.outer, w.groups, w.h, w.w, w.c // w.groups, w.k // w.groups),
            *(bias, a.causal, a.zeros, a.scale),
            *(View.of(view) for view in (a.q, a.k, a.v, a.o, a.bias)),
        )


class Operands(ctypes.Structure):
    """``ConvoyAttentionOperands``: device addresses, None for what is not there."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("q", "k", "v", "bias", "o")]


class AttentionLibrary(Library):
    """A library of ``convoy/attention_abi.h``."""

    kind = "attention"
    prefix = "attention_"
    abi = 1
