"""Kernel libraries of ``codegen/depthwise`` as plain data, and their source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ....ir import fields as checks
from ....ir.dtypes import HALF_DTYPES
from ..instance import ExportedTemplate, instance_from_json
from ..kernel import ELEMENT, SHORT

#: Square filters with specialized libraries; 0 is the library for all filters.
FILTERS = (0, 3, 5, 7)


class DepthwiseLibrary(ExportedTemplate):
    """Base of the dataclasses below. A library supports all epilogues, sizes, strides and
    dilations, and runs on every GPU from sm_80 on."""

    folder: ClassVar[str] = "depthwise"
    export: ClassVar[str] = "CONVOY_EXPORT_STRIDED_DEPTHWISE(Kernel)"
    dtype: str

    @property
    def flags(self) -> tuple[str, ...]:
        """Machine code for sm_80 and sm_90, and PTX for other architectures."""
        return (
            "-gencode=arch=compute_80,code=[compute_80,sm_80]",
            "-gencode=arch=compute_90,code=sm_90",
        )


def _filter(value: object) -> int:
    if type(value) is int and value in FILTERS:
        return value
    raise checks.Mismatch(f"one of {', '.join(map(str, FILTERS))}", value)


@dataclass(frozen=True, order=True)
class FilterKernel(DepthwiseLibrary):
    """Base of the depthwise kernels, of one dtype, for filters of one size or (0) of any.

    Raises InvalidOption for another filter size or dtype.
    """

    filter: int
    dtype: str = "float16"

    fields: ClassVar[Mapping[str, checks.Check]] = {
        "filter": _filter,
        "dtype": checks.one_of(tuple(ELEMENT)),
    }

    def __post_init__(self) -> None:
        self.check_fields()

    @property
    def name(self) -> str:
        return f"{self.family}{self.filter or ''}_{SHORT[self.dtype]}"

    @property
    def arguments(self) -> str:
        return f"{ELEMENT[self.dtype]}, {self.filter}"


class ConvKernel(FilterKernel):
    """fprop and dgrad."""

    family: ClassVar[str] = "depthwise_conv"
    template: ClassVar[str] = "DepthwiseConv"


class WgradKernel(FilterKernel):
    """wgrad, which is launched behind the end of its predecessor."""

    family: ClassVar[str] = "depthwise_wgrad"
    export: ClassVar[str] = "CONVOY_EXPORT_KERNEL_WITH(Kernel, convoy::describe)"
    template: ClassVar[str] = "DepthwiseWgrad"


@dataclass(frozen=True, order=True)
class TensorCoreKernel(DepthwiseLibrary):
    """Base of the fprops of grouped convolutions on tensor cores, in float16 or bfloat16.

    Raises InvalidOption for another dtype.
    """

    dtype: str = "float16"

    fields: ClassVar[Mapping[str, checks.Check]] = {"dtype": checks.one_of(HALF_DTYPES)}

    def __post_init__(self) -> None:
        self.check_fields()

    @property
    def name(self) -> str:
        return f"{self.family}_{SHORT[self.dtype]}"

    @property
    def arguments(self) -> str:
        return ELEMENT[self.dtype]


class GroupedKernel(TensorCoreKernel):
    """Reads inputs from global memory."""

    family: ClassVar[str] = "grouped_conv"
    template: ClassVar[str] = "GroupedConv"


class StagedKernel(TensorCoreKernel):
    """Copies inputs to shared memory."""

    family: ClassVar[str] = "staged_conv"
    template: ClassVar[str] = "StagedConv"


DepthwiseKernel = ConvKernel | WgradKernel | GroupedKernel | StagedKernel

_KINDS: tuple[type[DepthwiseKernel], ...] = (ConvKernel, WgradKernel, GroupedKernel, StagedKernel)


def kernel_from_json(data: object) -> DepthwiseKernel:
    """Inverse of ``to_json``; raises InvalidOption on unknown families or fields."""
    return instance_from_json(data, _KINDS)
