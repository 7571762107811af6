"""An attention library called from Python through its C ABI (``convoy/attention_abi.h``).

For checks and tests: the hot path is the C++ runtime's.
"""

from __future__ import annotations

import ctypes
import os

from ....errors import CorruptArtefact, InvalidOption
from ....ir.attention import RowView
from ....ir.workload import Workload
from ..library import load_cudart

ABI_VERSION = 1


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


class AttentionLibrary:
    """A loaded attention library. Raises CorruptArtefact when it cannot be loaded or is of another
    ABI, LibraryMissing without libcudart.so.13."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        load_cudart()
        try:
            self._functions = ctypes.CDLL(os.fspath(path))
            version = self._functions.convoy_kernel_attention_abi()
        except (OSError, AttributeError) as error:
            raise CorruptArtefact(
                f"attention library {path} that does not load ({error})", "a library of convoy"
            ) from None
        if version != ABI_VERSION:
            raise CorruptArtefact(
                f"attention library {path} of ABI {version}", f"ABI {ABI_VERSION}", "Build it again"
            )
        self._functions.convoy_kernel_state_bytes.restype = ctypes.c_int64
        self._functions.convoy_kernel_error.restype = ctypes.c_char_p

    def check(self, problem: Problem) -> str:
        """Why the kernel cannot run a problem; empty when it can. Needs no GPU."""
        code = self._functions.convoy_kernel_attention_check(ctypes.byref(problem))
        return self._words(code) if code else ""

    def prepare(self, problem: Problem, operands: Operands) -> PreparedAttention:
        """Encode problem and pointers for the current device; raises InvalidOption."""
        return PreparedAttention(self, problem, operands)

    @property
    def state_bytes(self) -> int:
        return int(self._functions.convoy_kernel_state_bytes())

    def call(self, name: str, *arguments: object) -> None:
        """Call ``convoy_kernel_<name>``; raises InvalidOption with its words on an error code."""
        code = getattr(self._functions, f"convoy_kernel_{name}")(*arguments)
        if code != 0:
            raise InvalidOption(f"{name} of an attention library: {self._words(code)}")

    def _words(self, code: int) -> str:
        return str(self._functions.convoy_kernel_error(code).decode())


class PreparedAttention:
    """A kernel with its problem and pointers encoded; :meth:`launch` enqueues it."""

    def __init__(self, library: AttentionLibrary, problem: Problem, operands: Operands) -> None:
        self._library = library
        self._buffer = ctypes.create_string_buffer(library.state_bytes + 63)
        aligned = (ctypes.addressof(self._buffer) + 63) // 64 * 64
        self._state = ctypes.c_void_p(aligned)
        arguments = ctypes.byref(problem), ctypes.byref(operands), self._state
        library.call("attention_prepare", *arguments)

    def launch(self, stream: int) -> None:
        """Enqueue on a ``cudaStream_t``; raises InvalidOption with the library's words."""
        self._library.call("launch", self._state, ctypes.c_void_p(stream))
