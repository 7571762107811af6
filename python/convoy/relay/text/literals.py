"""Numbers of the text format.

`1f` is float32, `1f16` and `1f64` give their width; `1` is int32, or int64 where it does not fit;
`1i16` and `1i64` give their width. A number without `f` is an integer. Minus signs before the first
digit fold into the number.
"""

from __future__ import annotations

import re

import numpy as np

from convoy.relay.attrs import Int64

_NUMBER = re.compile(r"(-*)([0-9][0-9.eE+\-]*|inf|nan)(?:([fi])([0-9]*))?")
_INT = re.compile(r"[0-9]{1,20}")
_FLOAT = re.compile(r"[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|inf|nan")
_MAX_INT64 = 2**63
_FINITE = {width: np.finfo(f"float{width}").max for width in ("16", "32", "64")}
#: The shortest text of the largest number may lie beyond it.
_LARGEST = {width: max(float(most), float(str(most))) for width, most in _FINITE.items()}

Number = int | float


class BadNumber(ValueError):
    """A malformed literal: what was got, what was expected, what to do."""

    def __init__(self, got: str, expected: str, remedy: str = "") -> None:
        super().__init__(got)
        self.got, self.expected, self.remedy = got, expected, remedy


def parse_number(text: str) -> tuple[Number, str]:
    """Parse a literal; return its value and dtype.

    Raises:
        BadNumber: Not a number of the format.
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise BadNumber(f"invalid number '{_short(text)}'", "1, 1i64, 1f or 1.5f16")
    minus, digits, suffix, width = match.groups()
    sign = -1 if len(minus) % 2 else 1
    if suffix == "f":
        return _float(text, digits, width or "32", sign)
    return _int(text, digits, width if suffix else None, sign)


def _float(text: str, digits: str, width: str, sign: int) -> tuple[float, str]:
    if width not in ("16", "32", "64"):
        raise BadNumber(f"'{_short(text)}': float literal of {width} bits", "f16, f32 or f64")
    if not _FLOAT.fullmatch(digits):
        raise BadNumber(f"invalid number '{_short(text)}'", "a number such as 1.5f or 1e-05f")
    value = sign * float(digits)
    if not digits.startswith(("inf", "nan")) and abs(value) > _LARGEST[width]:
        raise BadNumber(f"'{_short(text)}', which does not fit float{width}", "a smaller number")
    return value, f"float{width}"


def _int(text: str, digits: str, width: str | None, sign: int) -> tuple[int, str]:
    if not _INT.fullmatch(digits):
        is_float = _FLOAT.fullmatch(digits) is not None
        raise BadNumber(
            f"invalid integer '{_short(text)}'",
            "an integer of at most 64 bits",
            f"A float has the suffix f: {_short(text)}f" if is_float and width is None else "",
        )
    value = sign * int(digits)
    if width is None:
        width = "32" if -(2**31) <= value < 2**31 else "64"
    elif width == "":
        width = "32"
    if width not in ("16", "32", "64"):
        raise BadNumber(
            f"'{_short(text)}': integer literal of {width} bits",
            "i16, i32 or i64",
            "Other widths are written as meta[relay.Constant][n] or with cast",
        )
    limit = 2 ** (int(width) - 1)
    if not -limit <= value < limit:
        raise BadNumber(f"'{_short(text)}', which does not fit int{width}", "a smaller integer")
    return value, f"int{width}"


def as_constant(value: Number, dtype: str) -> np.ndarray:
    """Convert a literal to a 0-d array."""
    return np.array(value, dtype=dtype)


def as_attribute(value: Number, dtype: str) -> Number:
    """Convert a literal to an attribute value: `2i64` keeps its width."""
    return Int64(value) if dtype == "int64" and abs(value) < _MAX_INT64 else value


def _short(text: str) -> str:
    return text if len(text) <= 32 else text[:32] + "..."
