"""Read JSON from files into validated values.

A file is untrusted until it has been checked here: every field has a type and a range, text and
nesting are bounded, and the error for an unknown or missing field names it. A check takes a value
and returns it, lists as tuples, or raises :class:`Mismatch` with the expected value.
"""

from __future__ import annotations

import json
import os
import reprlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TypeVar

from ..errors import ConvoyError

T = TypeVar("T")
Check = Callable[[object], object]

#: Levels of lists and objects in one JSON text.
MOST_DEPTH = 64
#: Bytes of one JSON text, such as a plan, or of a list of workloads.
MOST_BYTES = 64 << 20
#: Bytes read at a time.
_STEP = 1 << 20


class Mismatch(ValueError):
    """A value of another type or range.

    Args:
        expected: The accepted values.
        got: The value.
        path: Its location below the field, such as ``[2]``.
    """

    def __init__(self, expected: str, got: object, path: str = "") -> None:
        self.expected, self.got, self.path = expected, got, path
        super().__init__(expected)


def boolean(value: object) -> bool:
    if value is True or value is False:
        return value
    raise Mismatch("true or false", value)


def integer(least: int = 0, most: int = 2**31 - 1) -> Callable[[object], int]:
    """Accept an int, but not a bool, from ``least`` to ``most``."""

    def check(value: object) -> int:
        if type(value) is int and least <= value <= most:
            return value
        raise Mismatch(f"an integer from {least} to {most}", value)

    return check


def number(least: float, most: float) -> Callable[[object], float]:
    """Accept an int or float, but not NaN or a bool, from ``least`` to ``most``."""

    def check(value: object) -> float:
        if (type(value) is float or type(value) is int) and least <= value <= most:
            return value
        raise Mismatch(f"a number from {least:g} to {most:g}", value)

    return check


def text(most: int = 200) -> Callable[[object], str]:
    """Accept a string of at most ``most`` characters."""

    def check(value: object) -> str:
        if type(value) is str and len(value) <= most:
            return value
        raise Mismatch(f"text of at most {most} characters", value)

    return check


def one_of(names: Collection[str]) -> Callable[[object], str]:
    """Accept one of some strings."""

    def check(value: object) -> str:
        if type(value) is str and value in names:
            return value
        raise Mismatch(f"one of {', '.join(names)}", value)

    return check


def optional(inner: Callable[[object], T]) -> Callable[[object], T | None]:
    """Accept None as well."""
    return lambda value: None if value is None else inner(value)


def tuple_of(
    inner: Callable[[object], T], length: int | None = None, most: int = 1 << 20
) -> Callable[[object], tuple[T, ...]]:
    """Accept a list or tuple, of ``length`` entries or of at most ``most``; return a tuple."""

    def check(value: object) -> tuple[T, ...]:
        if not isinstance(value, (list, tuple)):
            raise Mismatch("a list", value)
        if len(value) != length if length is not None else len(value) > most:
            raise Mismatch(f"{f'{most} or fewer' if length is None else length} entries", value)
        try:
            return tuple(map(inner, value))
        except Mismatch:
            return tuple(_at(f"[{index}]", inner, entry) for index, entry in enumerate(value))

    return check


def mapping(inner: Callable[[object], T], most: int = 1 << 20) -> Callable[[object], dict[str, T]]:
    """Accept an object of at most ``most`` fields of any name."""

    def check(value: object) -> dict[str, T]:
        if not isinstance(value, dict) or len(value) > most:
            raise Mismatch(f"an object of at most {most} fields", value)
        return {name: _at(f".{name}", inner, entry) for name, entry in value.items()}

    return check


def _at(place: str, inner: Callable[[object], T], value: object) -> T:
    try:
        return inner(value)
    except Mismatch as bad:
        raise Mismatch(bad.expected, bad.got, place + bad.path) from None


def checked(
    data: object,
    fields: Mapping[str, Check],
    what: str,
    error: type[ConvoyError],
    required: Collection[str] = (),
) -> dict[str, object]:
    """Check a JSON object.

    Args:
        data: What was read.
        fields: A check for each field that there may be.
        what: The object's name in errors, such as "workload".
        error: The error to raise.
        required: Fields that must be there.

    Returns:
        The fields that are there, checked.
    """
    if not isinstance(data, dict):
        raise error(f"{what} {reprlib.repr(data)}", "a JSON object")
    found: dict[str, object] = {}
    name = ""
    try:
        for name, value in data.items():
            found[name] = fields[name](value)
    except KeyError:
        known = ", ".join(fields)
        raise error(
            f"unknown field {reprlib.repr(name)} of {what}", f"the fields {known}"
        ) from None
    except Mismatch as bad:
        got = f"{what}: {name}{bad.path} {reprlib.repr(bad.got)}"
        raise error(got, bad.expected) from None
    for name in required:
        if name not in found:
            raise error(f"{what} without {name!r}", f"the fields {', '.join(required)}")
    return found


def made(
    kind: Callable[..., T],
    data: object,
    fields: Mapping[str, Check],
    what: str,
    error: type[ConvoyError],
    required: Collection[str] = (),
) -> T:
    """Return ``kind`` of the fields of a JSON object; arguments are those of :func:`checked`."""
    return kind(**checked(data, fields, what, error, required))


def check_attributes(
    value: object, fields: Mapping[str, Check], what: str, error: type[ConvoyError]
) -> None:
    """Check the attributes of an object; their types have to be exact."""
    for name, check in fields.items():
        got = getattr(value, name)
        try:
            exact = check(got)
            if type(exact) is not type(got):
                raise Mismatch(f"a {type(exact).__name__}", got)
        except Mismatch as bad:
            raise error(f"{what}: {name}{bad.path} {reprlib.repr(bad.got)}", bad.expected) from None


def parse_json(data: str | bytes, what: str, error: type[ConvoyError]) -> object:
    """Parse JSON of bounded size and depth; ``what`` names it in the error."""
    if len(data) > MOST_BYTES:
        raise error(f"{what} of {len(data)} bytes", f"at most {MOST_BYTES}")
    try:
        value = json.loads(data)
    except RecursionError:
        raise error(f"{what} nested too deep", f"JSON of at most {MOST_DEPTH} levels") from None
    except ValueError as err:
        raise error(f"{what} that is not JSON ({err})", "JSON text") from None
    if isinstance(data, bytes):
        brackets = data.count(b"[") + data.count(b"{")
    else:
        brackets = data.count("[") + data.count("{")
    if brackets > MOST_DEPTH and not _is_shallow(value):
        raise error(f"{what} nested too deep", f"JSON of at most {MOST_DEPTH} levels")
    return value


def _is_shallow(value: object) -> bool:
    level = [value]
    for _ in range(MOST_DEPTH + 1):
        inner: list[object] = []
        for entry in level:
            if type(entry) is list:
                inner += entry
            elif type(entry) is dict:
                inner += entry.values()
        if not inner:
            return True
        level = inner
    return False


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """Read a file of at most ``most`` bytes. Raises OSError if it cannot be read or is larger."""
    parts, left = [], most + 1
    with path.open("rb") as file:  # read(most) would reserve all of it, and pipes tell no size
        step = max(_STEP, os.fstat(file.fileno()).st_size + 1)
        while left > 0 and (part := file.read(min(left, step))):
            parts.append(part)
            left -= len(part)
    if left <= 0:
        raise OSError(f"more than {most} bytes")
    return b"".join(parts)
