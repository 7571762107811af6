"""Errors: one class for each mistake that a user can make.

A message states what was got, what was expected and, where there is one, a remedy: a command or
setting that works from a checkout and from a wheel (``paths.install_command``).
"""

from __future__ import annotations


class ConvoyError(RuntimeError):
    """Base of all errors raised on purpose by convoy; a RuntimeError, as TVM's own are.

    Args:
        got: What was found; alone, the whole message.
        expected: What would have been accepted.
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


class InvalidWorkload(ConvoyError):
    """A workload whose sizes or dtypes contradict each other."""


class UnsupportedOp(ConvoyError):
    """A Relay or Relax operator that convoy cannot convert or compile."""


class UnsupportedDtype(ConvoyError):
    """A data type outside float32, float16 and bfloat16 where one of these is needed."""


class UnsupportedLayout(ConvoyError):
    """A data or kernel layout that cannot be converted to NHWC and OHWI."""


class DynamicShape(ConvoyError):
    """A symbolic dimension where only static shapes can be compiled."""


class InvalidModel(ConvoyError):
    """A model file that its importer cannot read or convert."""


class RelaySyntaxError(ConvoyError):
    """Relay text that does not parse; carries file, line and column."""


class RelayTypeError(ConvoyError):
    """Relay program whose shapes or dtypes do not fit together."""


class NoGpu(ConvoyError):
    """A GPU is needed and none is usable."""


class OutOfMemory(ConvoyError):
    """The GPU's memory is used up; sessions that exist still run, others can be made once some is
    free."""


class GpuLost(ConvoyError):
    """The GPU stopped working for this process: an illegal access, a hang, a device that is
    gone."""


class LibraryMissing(ConvoyError):
    """CUDA, cuDNN, cuBLASLt, nvcc, CUTLASS or the convoy runtime library was not found."""


class WrongDevice(ConvoyError):
    """An artefact built for another GPU architecture."""


class CaptureNotReady(ConvoyError):
    """A function captured into a CUDA graph before its plan was built; names the call to make."""


class LibraryVersionMismatch(ConvoyError):
    """An artefact whose cuDNN engines do not exist in the cuDNN that is installed."""


class CorruptArtefact(ConvoyError):
    """A compiled module that is truncated or damaged."""


class UntrustedModule(ConvoyError):
    """A compiled module that no trusted key signed, where a signature was asked for."""


class CorruptRecords(ConvoyError):
    """A record file that cannot be read at all (single bad lines are skipped and reported)."""


class CacheUnwritable(ConvoyError):
    """The cache folder is read-only or its disk is full."""


class CacheUntrusted(ConvoyError):
    """The cache folder belongs to another user, or everyone may write to it."""


class CompileFailed(ConvoyError):
    """nvcc rejected a generated kernel; carries the command and the compiler's message."""


class NotSchedulable(ConvoyError):
    """A lowered function with a construct that the stream scheduler does not support."""


class MeasuringFailed(ConvoyError):
    """The measuring process does not start, or its GPU is not usable any more."""


class NoCandidate(ConvoyError):
    """Every backend declined an operation; carries their reasons."""


class InvalidOption(ConvoyError):
    """An option of a public function or command outside its allowed values."""


class InvalidMatchGraph(ConvoyError):
    """Operators and matches given to the placer that do not fit together."""


class RemovedFromTvm(ConvoyError):
    """A part of TVM 0.18 that neither TVM nor convoy has; names what takes its place."""


class UnmatchedValue(ConvoyError):
    """A value for which a Relay `match` has no clause."""
