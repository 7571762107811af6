"""The ``.cu`` text of a kernel of ``codegen/hopper``: one instance of a template, exported."""

from __future__ import annotations

from typing import ClassVar, Protocol

from ....errors import InvalidOption

ELEMENT = {"float16": "__half", "bfloat16": "__nv_bfloat16"}
SHORT = {"float16": "f16", "bfloat16": "bf16"}


class _Kernel(Protocol):
    family: ClassVar[str]

    @property
    def name(self) -> str: ...


def source_text(
    kernel: _Kernel, config: str, arguments: list[str], library: str, *, workspace: bool = False
) -> str:
    """Source of ``library<config<arguments>>``; ``workspace`` where the class needs one."""
    export = "CONVOY_EXPORT_HOPPER_WORKSPACE_KERNEL" if workspace else "CONVOY_EXPORT_HOPPER_KERNEL"
    return (
        f"// {kernel.name}\n"
        f'#include "{kernel.family}_library.cuh"\n\n'
        f"using Config = convoy::hopper::{config}<{', '.join(arguments)}>;\n"
        f"using Kernel = convoy::hopper::{library}<Config>;\n\n"
        f"{export}(Kernel)\n"
    )


def check_dtype(dtype: str) -> None:
    """Raises InvalidOption for a type that no kernel is compiled for."""
    if dtype not in ELEMENT:
        raise InvalidOption(f"dtype {dtype!r}", f"one of {', '.join(ELEMENT)}")
