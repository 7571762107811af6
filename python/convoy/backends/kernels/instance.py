"""Base of kernels that are one exported instance of a template, described by a frozen dataclass."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Mapping, Sequence
from typing import ClassVar, TypeVar

from ...errors import InvalidOption
from ...ir import fields as checks

T = TypeVar("T", bound="TemplateInstance")


class TemplateInstance:
    """Implementation of :class:`.kernel.Kernel` except for ``name``, ``flags`` and ``source``.

    Its header is ``codegen/FOLDER/FAMILY_library.cuh``; a kernel needs neither CUTLASS nor much
    memory to compile.
    """

    folder: ClassVar[str]
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
        return f"{self.folder}/{self.family}_library.cuh"

    @property
    def build_bytes(self) -> int:
        return 1 << 30

    @property
    def uses_cutlass(self) -> bool:
        return False

    def to_json(self) -> dict[str, object]:
        return {"family": self.family, **dataclasses.asdict(self)}  # type: ignore[call-overload]

    @classmethod
    def from_json(cls: type[T], data: dict[str, object]) -> T:
        """Read the fields of :meth:`to_json` without ``family``; raises InvalidOption for
        others."""
        required = [
            field.name
            for field in dataclasses.fields(cls)  # type: ignore[arg-type]
            if field.default is dataclasses.MISSING
        ]
        return checks.made(cls, data, cls.fields, cls.family, InvalidOption, required)


class ExportedTemplate(TemplateInstance):
    """A library whose source is ``convoy::FOLDER::TEMPLATE<ARGUMENTS>``, exported as ``Kernel``."""

    template: ClassVar[str]
    #: A macro of the header with its argument.
    export: ClassVar[str]

    @property
    def arguments(self) -> str:
        """Template arguments."""
        raise NotImplementedError

    @property
    def source(self) -> str:
        """The ``.cu`` text; equal for equal kernels."""
        return (
            f"// {self.name}\n"
            f'#include "{self.family}_library.cuh"\n\n'
            f"using Kernel = convoy::{self.folder}::{self.template}<{self.arguments}>;\n\n"
            f"{self.export}\n"
        )


def instance_from_json(data: object, kinds: Sequence[type[T]]) -> T:
    """Inverse of :meth:`TemplateInstance.to_json` for one of several families; raises InvalidOption
    on unknown families or fields."""
    if not isinstance(data, dict):
        raise InvalidOption(f"kernel {reprlib.repr(data)}", "a JSON object")
    fields = dict(data)
    family = fields.pop("family", None)
    for kind in kinds:
        if kind.family == family:
            return kind.from_json(fields)
    families = ", ".join(kind.family for kind in kinds)
    raise InvalidOption(f"kernel family {reprlib.repr(family)}", f"one of {families}")
