"""Strings and numbers as `save_json` files write them."""

from __future__ import annotations

import base64
import binascii
import math
from typing import Any

from convoy.errors import RelaySyntaxError


def string_of(node: dict[str, Any]) -> str:
    """Return the text of a string node."""
    if "repr_b64" not in node:
        return str(node.get("repr_str", ""))
    try:
        raw = base64.b64decode(str(node["repr_b64"]))
    except (binascii.Error, ValueError):
        raise RelaySyntaxError("a string that is no base64") from None
    return raw[8:].decode("utf-8", "replace")  # behind its length


def to_int(text: str, what: str) -> int:
    """Parse a number, which files write as a string.

    Args:
        text: The string.
        what: The field, for the error.

    Raises:
        RelaySyntaxError: Not an integer of 64 bits.
    """
    digits = text[1:] if text.startswith("-") else text
    value = int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 19 else None
    if value is None or not -(2**63) <= value < 2**63:
        raise RelaySyntaxError(f"{what} = '{text[:32]}'", "an integer of 64 bits")
    return value


def to_float(text: str, what: str) -> float:
    """Parse a float, which is not NaN; raises as `to_int`."""
    try:
        value = float(text)
    except ValueError:
        raise RelaySyntaxError(f"{what} = '{text[:32]}'", "a number") from None
    if math.isnan(value):
        raise RelaySyntaxError(f"{what} = nan", "a number")
    return value
