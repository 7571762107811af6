"""Base of the kernels of ``codegen/sm90``: each one exported instance of a template."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ....ir import fields as checks
from ....ir.dtypes import HALF_DTYPES
from ..instance import ExportedTemplate, TemplateInstance
from ..kernel import ELEMENT, SHORT


class Sm90Library(TemplateInstance):
    """Base of the dataclasses that describe a library of ``codegen/sm90``."""

    folder: ClassVar[str] = "sm90"

    @property
    def flags(self) -> tuple[str, ...]:
        """wgmma, setmaxnreg and TMA exist for sm_90a alone."""
        return ("-gencode=arch=compute_90a,code=sm_90a",)


DTYPE = checks.one_of(HALF_DTYPES)
EXTENT = checks.integer(1, 4096)


@dataclass(frozen=True, order=True)
class DtypeLibrary(Sm90Library, ExportedTemplate):
    """A library for all problems of a dtype."""

    dtype: str = "float16"

    fields: ClassVar[Mapping[str, checks.Check]] = {"dtype": DTYPE}

    def __post_init__(self) -> None:
        self.check_fields()

    @property
    def name(self) -> str:
        return f"{self.family}_{SHORT[self.dtype]}"

    @property
    def arguments(self) -> str:
        return ELEMENT[self.dtype]


def source_text(
    kernel: Sm90Library, config: str, arguments: list[str], library: str, *, workspace: bool = False
) -> str:
    """Source of ``library<config<arguments>>``; ``workspace`` where the class needs one."""
    export = "CONVOY_EXPORT_SM90_WORKSPACE_KERNEL" if workspace else "CONVOY_EXPORT_SM90_KERNEL"
    return (
        f"// {kernel.name}\n"
        f'#include "{kernel.family}_library.cuh"\n\n'
        f"using Config = convoy::sm90::{config}<{', '.join(arguments)}>;\n"
        f"using Kernel = convoy::sm90::{library}<Config>;\n\n"
        f"{export}(Kernel)\n"
    )
