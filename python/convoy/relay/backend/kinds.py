"""Kinds of executor and runtime, with their options.

Convoy has one executor and one runtime, which the kinds and most options do not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy.errors import InvalidOption

_BOOL, _STRING, _INT = "runtime.BoxBool", "runtime.String", "runtime.BoxInt"


class _Kind:
    """A kind of part of TVM with its options, by name.

    Args:
        name: The kind.
        options: Options of the kind by name.

    Raises:
        InvalidOption: An unknown kind or option, or a value of another type.
    """

    _kinds: Mapping[str, Mapping[str, str]] = {}

    def __init__(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        what, known = type(self).__name__, self.list_registered_options(name)
        for option, value in (options or {}).items():
            if option not in known:
                raise InvalidOption(
                    f'Attribute "{option}" is not available on this {what}', ", ".join(known)
                )
            if (found := _type_name(value)) != known[option]:
                raise InvalidOption(
                    f'Attribute "{option}" should have type "{known[option]}"'
                    f' but instead found "{found}"'
                )
        self.name, self.attrs = name, dict(options or {})

    @classmethod
    def list_registered(cls) -> list[str]:
        """Return the kinds."""
        return list(cls._kinds)

    @classmethod
    def list_registered_options(cls, name: str | _Kind) -> dict[str, str]:
        """Return the options of a kind, each with the type of its value."""
        if str(name) not in cls._kinds:
            raise InvalidOption(f'{cls.__name__} "{name}" is not defined', ", ".join(cls._kinds))
        return dict(cls._kinds[str(name)])

    def __getitem__(self, option: str) -> Any:
        if option not in self.attrs and option in self._kinds[self.name]:
            return False if self._kinds[self.name][option] == _BOOL else None
        return self.attrs[option]

    def __contains__(self, option: object) -> bool:
        return option in self.attrs

    def __str__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.name))


def _type_name(value: Any) -> str:
    kinds = {bool: _BOOL, str: _STRING, int: _INT}
    return kinds.get(type(value), type(value).__name__)


class Executor(_Kind):
    """A kind of executor, "graph" or "aot"."""

    _kinds = {
        "graph": {"link-params": _BOOL},
        "aot": {
            "link-params": _BOOL,
            "unpacked-api": _BOOL,
            "interface-api": _STRING,
            "workspace-byte-alignment": _INT,
            "constant-byte-alignment": _INT,
        },
    }


class Runtime(_Kind):
    """A kind of runtime: "cpp", or "crt" of microcontrollers, which nothing can be built for."""

    _kinds = {"cpp": {"system-lib": _BOOL}, "crt": {"system-lib": _BOOL}}
