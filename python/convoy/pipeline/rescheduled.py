"""Warn about kernels that are compiled with a simpler schedule than planned."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence

from ..ir.artifact import Meta
from ..runtime.compiled import CompiledModule
from ..tir import Rescheduled


def with_rescheduled(meta: Meta, kernels: Sequence[Rescheduled]) -> Meta:
    """``meta``, with a warning for each kernel that is not scheduled as it should be."""
    for kernel in kernels:
        warnings.warn(f"compiled with a simpler schedule: {kernel}", stacklevel=4)
    return dataclasses.replace(meta, rescheduled=tuple(map(str, kernels)))


def repeat_warnings(module: CompiledModule) -> CompiledModule:
    """The module of an earlier build, with the warnings of that build."""
    for kernel in dict.fromkeys(
        k for m in (module.meta, *module.meta.others) for k in m.rescheduled
    ):
        warnings.warn(f"compiled with a simpler schedule: {kernel}", stacklevel=5)
    return module
