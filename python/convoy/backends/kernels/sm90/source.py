"""Base of the kernels of ``codegen/sm90``: each one exported instance of a template."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from ....errors import InvalidOption
from ....ir import fields as checks

ELEMENT = {"float16": "__half", "bfloat16": "__nv_bfloat16"}
SHORT = {"float16": "f16", "bfloat16": "bf16"}

L = TypeVar("L", bound="Sm90Library")


class Sm90Library:
    """Base of the dataclasses that describe a library: what :class:`..kernel.Kernel` asks for."""

    #: Its header is ``codegen/sm90/FAMILY_library.cuh``.
    family: ClassVar[str]
    #: A check for each field: its source is made of them, and they come from records and plans.
    fields: ClassVar[Mapping[str, checks.Check]]

    def check_fields(self) -> None:
        """Raise InvalidOption for a field of another type or range."""
        checks.check_attributes(self, self.fields, self.family, InvalidOption)

    @property
    def name(self) -> str:
        """Unique among all kernels."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        return self.name

    @property
    def header(self) -> str:
        return f"sm90/{self.family}_library.cuh"

    @property
    def flags(self) -> tuple[str, ...]:
        """wgmma, setmaxnreg and TMA exist for sm_90a alone."""
        return ("-gencode=arch=compute_90a,code=sm_90a",)

    @property
    def build_bytes(self) -> int:
        return 1 << 30

    @property
    def uses_cutlass(self) -> bool:
        return False

    def to_json(self) -> dict[str, Any]:
        return {"family": self.family, **dataclasses.asdict(self)}  # type: ignore[call-overload]

    @classmethod
    def from_json(cls: type[L], data: dict[str, Any]) -> L:
        """Of :meth:`to_json`'s fields without ``family``; raises InvalidOption for others."""
        required = [
            field.name
            for field in dataclasses.fields(cls)  # type: ignore[arg-type]
            if field.default is dataclasses.MISSING
        ]
        return cls(**checks.checked(data, cls.fields, cls.family, InvalidOption, required))


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


DTYPE = checks.one_of(tuple(ELEMENT))
EXTENT = checks.integer(1, 4096)
