"""The switch of programmatic dependent launches (sm_90): kernels that start, and read constant
weights, before their predecessor in the stream has ended."""

from __future__ import annotations

import os

#: "0" turns programmatic launches off for the following builds.
VARIABLE = "CONVOY_PROGRAMMATIC_LAUNCH"


def wanted() -> bool:
    """Return whether modules that are built now may launch kernels that way."""
    return os.environ.get(VARIABLE, "1") != "0"


def available(arch: int) -> bool:
    """Return whether kernels for this architecture are launched that way: those that TVM generates,
    and those of libraries that are made for it."""
    return arch >= 90 and wanted()
