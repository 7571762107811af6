"""A kernel library called from Python through its C ABI (``convoy/kernel_abi.h``).

For checks and tests: the hot path is the C++ runtime's.
"""

from __future__ import annotations

import ctypes
import functools
import os

from ...errors import CorruptArtefact, InvalidOption, LibraryMissing
from ...ir.workload import Workload
from .toolkit import find_toolkit

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


class PreparedKernel:
    """A kernel with its problem and pointers encoded; :meth:`launch` enqueues it."""

    def __init__(self, library: KernelLibrary, shape: Shape, operands: Operands) -> None:
        self._library = library
        size = library.functions.convoy_kernel_state_bytes()
        self._buffer = ctypes.create_string_buffer(size + 63)
        aligned = (ctypes.addressof(self._buffer) + 63) // 64 * 64
        self._state = ctypes.c_void_p(aligned)
        library.call("prepare", ctypes.byref(shape), ctypes.byref(operands), self._state)

    def launch(self, stream: int) -> None:
        """Enqueue on a ``cudaStream_t``; raises InvalidOption with the library's words."""
        self._library.call("launch", self._state, ctypes.c_void_p(stream))

    def footprint(self) -> Footprint:
        footprint = Footprint()
        self._library.call("footprint", self._state, ctypes.byref(footprint))
        return footprint


class KernelLibrary:
    """A loaded kernel library. Raises CorruptArtefact when it cannot be loaded or is of another
    ABI, LibraryMissing without libcudart.so.13."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        load_cudart()
        try:
            self.functions = ctypes.CDLL(os.fspath(path))
            version = self.functions.convoy_kernel_abi()
        except (OSError, AttributeError) as error:
            raise CorruptArtefact(
                f"kernel library {path} that does not load ({error})", "a library of convoy"
            ) from None
        if version != ABI_VERSION:
            raise CorruptArtefact(
                f"kernel library {path} of ABI {version}", f"ABI {ABI_VERSION}", "Build it again"
            )
        self.functions.convoy_kernel_workspace.restype = ctypes.c_int64
        self.functions.convoy_kernel_state_bytes.restype = ctypes.c_int64
        self.functions.convoy_kernel_error.restype = ctypes.c_char_p

    def check(self, shape: Shape) -> str:
        """Why the kernel cannot run a problem; empty when it can. Needs no GPU."""
        code = self.functions.convoy_kernel_check(ctypes.byref(shape))
        return self._words(code) if code else ""

    def workspace(self, shape: Shape) -> int:
        """Workspace bytes of a problem that passed :meth:`check`. Needs no GPU."""
        return int(self.functions.convoy_kernel_workspace(ctypes.byref(shape)))

    def prepare(self, shape: Shape, operands: Operands) -> PreparedKernel:
        """Encode problem and pointers for the current device; raises InvalidOption."""
        return PreparedKernel(self, shape, operands)

    def call(self, name: str, *arguments: object) -> None:
        """Call ``convoy_kernel_<name>``; raises InvalidOption with its words on an error code."""
        code = getattr(self.functions, f"convoy_kernel_{name}")(*arguments)
        if code != 0:
            raise InvalidOption(f"{name} of a kernel library: {self._words(code)}")

    def _words(self, code: int) -> str:
        return str(self.functions.convoy_kernel_error(code).decode())


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
