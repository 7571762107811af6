"""Errors: one class for each mistake that a user can make.

A message states the invalid value, the expected one and, if there is one, a remedy: a command or
setting that works in a checkout and with a wheel (``paths.install_command``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


class ConvoyError(RuntimeError):
    """Base class of Convoy's errors; a RuntimeError, like TVM's.

    Args:
        got: The invalid value; on its own it is the complete message.
        expected: Values that are accepted.
        remedy: What to do about it.
    """

    def __init__(self, got: str, expected: str = "", remedy: str = "") -> None:
        self.got, self.expected, self.remedy = got, expected, remedy
        text = f"got {got}" if expected else got
        if expected:
            text += f"; expected {expected}"
        if remedy:
            text += f". {remedy}"
        super().__init__(text)

    def reworded(self, got: str | None = None, remedy: str | None = None) -> Self:
        """A copy with another invalid value or remedy, of whatever class the error is."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        ConvoyError.__init__(
            other,
            self.got if got is None else got,
            self.expected,
            self.remedy if remedy is None else remedy,
        )
        return other


class InvalidWorkload(ConvoyError):
    """A workload whose sizes or dtypes contradict each other."""


class UnsupportedOp(ConvoyError):
    """A Relay or Relax operator that convoy cannot convert or compile."""


class UnsupportedDtype(ConvoyError):
    """A data type other than float32, float16 and bfloat16 where one of these is required."""


class UnsupportedLayout(ConvoyError):
    """A data or kernel layout that cannot be converted to NHWC and OHWI."""


class DynamicShape(ConvoyError):
    """A symbolic dimension; only static shapes can be compiled."""


class InvalidModel(ConvoyError):
    """A model file that its importer cannot read or convert."""


class RelaySyntaxError(ConvoyError):
    """Relay text, JSON or parameters that cannot be read; of text the message has file, line and
    column."""


class RelayTypeError(ConvoyError):
    """A Relay program whose shapes or dtypes do not match."""


class NoGpu(ConvoyError):
    """A GPU is required and none is usable."""


class OutOfMemory(ConvoyError):
    """The GPU is out of memory; existing sessions still run, and new ones can be created once
    memory is free."""


class GpuLost(ConvoyError):
    """The GPU is lost for this process: an illegal access, a hang, or a device that is gone."""


class LibraryMissing(ConvoyError):
    """CUDA, cuDNN, cuBLASLt, nvcc, CUTLASS or the convoy runtime library was not found."""


class WrongDevice(ConvoyError):
    """An artefact built for another GPU architecture."""


class CaptureNotReady(ConvoyError):
    """A function was captured into a CUDA graph before its plan was built; the message names the
    call to make first."""


class LibraryVersionMismatch(ConvoyError):
    """An artefact whose cuDNN engines do not exist in the installed cuDNN."""


class CorruptArtefact(ConvoyError):
    """A compiled module that is truncated or damaged."""


class UntrustedModule(ConvoyError):
    """A compiled module without a signature by a trusted key, where one was required."""


class CorruptRecords(ConvoyError):
    """A record file that cannot be read (single invalid lines are skipped and reported)."""


class CacheUnwritable(ConvoyError):
    """A file or the cache folder cannot be written, or the disk is full."""


class CacheUntrusted(ConvoyError):
    """The cache folder belongs to another user, or is writable by everyone."""


class CompileFailed(ConvoyError):
    """nvcc rejected a generated kernel; the message has the command and the compiler's output."""


class NotSchedulable(ConvoyError):
    """A lowered function with a construct that the stream scheduler does not support."""


class MeasuringFailed(ConvoyError):
    """The measuring process does not start, or its GPU is no longer usable."""


class NoCandidate(ConvoyError):
    """Every backend declined an operation; the message has their reasons."""


class InvalidOption(ConvoyError):
    """An option of a public function or command outside its allowed values."""


class InvalidMatchGraph(ConvoyError):
    """Operators and matches of a match graph that are inconsistent."""


class RemovedFromTvm(ConvoyError):
    """A part of TVM 0.18 that neither TVM nor Convoy has; the message names a replacement."""


class UnmatchedValue(ConvoyError):
    """A value for which a Relay `match` has no clause."""
