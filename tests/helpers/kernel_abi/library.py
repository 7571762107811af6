"""A kernel library called from Python through its C ABI (``convoy/kernel_abi.h``)."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import TYPE_CHECKING, ClassVar

from convoy.backends.kernels.toolkit import find_toolkit
from convoy.errors import CorruptArtefact, InvalidOption, LibraryMissing
from convoy.ir.workload import Workload

if TYPE_CHECKING:
    from ctypes import _NamedFuncPointer as Function

ABI_VERSION = 1
_OPS = {"fprop": 0, "matmul": 0, "dgrad": 1, "wgrad": 2}
_SHAPE_FIELDS = (
    *("op", "n", "h", "w", "c", "k", "r", "s", "p", "q", "stride_h", "stride_w"),
    *("pad_top", "pad_left", "pad_bottom", "pad_right", "dilation_h", "dilation_w"),
    *("groups", "split_k", "swizzle", "sm_count"),
)


class Shape(ctypes.Structure):
    """``ConvoyShape``."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in _SHAPE_FIELDS),
        ("clip_min", ctypes.c_float),
        ("clip_max", ctypes.c_float),
    ]

    @classmethod
    def of(cls, w: Workload, sm_count: int, split_k: int = 1, swizzle: int = 0) -> Shape:
        """A workload with a candidate's run-time choices."""
        (stride_h, stride_w), (dilation_h, dilation_w) = w.stride, w.dilation
        return cls(
            *(_OPS[w.op], w.n, w.h, w.w, w.c, w.k, w.r, w.s, w.p, w.q, stride_h, stride_w),
            *(*w.padding, dilation_h, dilation_w, w.groups, split_k, swizzle, sm_count),
            *(w.epilogue.alpha or w.epilogue.clip_min, w.epilogue.clip_max),
        )


class Operands(ctypes.Structure):
    """``ConvoyOperands``: device addresses, None for what is not there."""

    _fields_ = [
        (name, ctypes.c_void_p)
        for name in ("a", "b", "residual", "bias", "scale", "shift", "d", "d2", "workspace")
    ]


class Footprint(ctypes.Structure):
    """``ConvoyFootprint``."""

    _fields_ = [
        (name, ctypes.c_int32)
        for name in ("blocks", "threads_per_block", "shared_bytes", "registers_per_thread")
    ]


class Prepared:
    """A kernel with its problem and pointers encoded; :meth:`launch` enqueues it."""

    def __init__(
        self, library: Library, problem: ctypes.Structure, operands: ctypes.Structure
    ) -> None:
        self._library = library
        self._buffer = ctypes.create_string_buffer(library.state_bytes + 63)
        aligned = (ctypes.addressof(self._buffer) + 63) // 64 * 64
        self._state = ctypes.c_void_p(aligned)
        arguments = ctypes.byref(problem), ctypes.byref(operands), self._state
        library.call(f"{library.prefix}prepare", *arguments)

    def launch(self, stream: int) -> None:
        """Enqueue on a ``cudaStream_t``; raises InvalidOption with the library's message."""
        self._library.call("launch", self._state, ctypes.c_void_p(stream))

    def footprint(self) -> Footprint:
        footprint = Footprint()
        self._library.call("footprint", self._state, ctypes.byref(footprint))
        return footprint


class Library:
    """A loaded library. Raises CorruptArtefact if it cannot be loaded or has another ABI,
    LibraryMissing without libcudart.so.13."""

    #: Name in errors.
    kind: ClassVar[str]
    #: Of the names of the functions that depend on the kind of problem.
    prefix: ClassVar[str] = ""
    #: The version that is supported.
    abi: ClassVar[int]

    def __init__(self, path: str | os.PathLike[str]) -> None:
        load_cudart()
        try:
            self.functions = ctypes.CDLL(os.fspath(path))
            version = self.function(f"{self.prefix}abi")()
        except (OSError, AttributeError) as error:
            raise CorruptArtefact(
                f"{self.kind} library {path} that does not load ({error})", "a library of convoy"
            ) from None
        if version != self.abi:
            raise CorruptArtefact(
                f"{self.kind} library {path} of ABI {version}",
                f"ABI {self.abi}",
                "Build it again",
            )
        self.function("state_bytes").restype = ctypes.c_int64
        self.function("error").restype = ctypes.c_char_p

    def check(self, problem: ctypes.Structure) -> str:
        """Reason why the kernel cannot run a problem; empty if it can. Needs no GPU."""
        code = self.function(f"{self.prefix}check")(ctypes.byref(problem))
        return self._message(code) if code else ""

    def prepare(self, problem: ctypes.Structure, operands: ctypes.Structure) -> Prepared:
        """Encode problem and pointers for the current device; raises InvalidOption."""
        return Prepared(self, problem, operands)

    @property
    def state_bytes(self) -> int:
        return int(self.function("state_bytes")())

    def function(self, name: str) -> Function:
        """Return ``convoy_kernel_<name>``. Raises AttributeError if there is none."""
        found: Function = getattr(self.functions, f"convoy_kernel_{name}")
        return found

    def call(self, name: str, *arguments: object) -> None:
        """Call a function; raises InvalidOption with the library's message on an error code."""
        code = self.function(name)(*arguments)
        if code != 0:
            raise InvalidOption(f"{name} of the {self.kind} library: {self._message(code)}")

    def _message(self, code: int) -> str:
        return str(self.function("error")(code).decode())


class KernelLibrary(Library):
    """A library of ``convoy/kernel_abi.h``."""

    kind = "kernel"
    abi = ABI_VERSION

    def workspace(self, shape: Shape) -> int:
        """Workspace bytes of a problem that passed :meth:`check`. Needs no GPU."""
        function = self.function("workspace")
        function.restype = ctypes.c_int64
        return int(function(ctypes.byref(shape)))


@functools.cache
def load_cudart() -> None:
    """Make libcudart.so.13 findable by name for the libraries that need it."""
    try:
        ctypes.CDLL("libcudart.so.13", mode=ctypes.RTLD_GLOBAL)
    except OSError:
        path = find_toolkit().cudart
        try:
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise LibraryMissing(f"{path} that does not load ({error})") from None
