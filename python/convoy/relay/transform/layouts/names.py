"""Layouts by name, as the passes over layouts compare them: "NCHW16c", "" of a scalar."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"[A-Z]|[0-9]+[a-z]")


def tokens(name: str) -> list[str]:
    """Return a part of the name for each dimension: N, C, H, W, 16c."""
    return _TOKEN.findall(name)


def axes(name: str) -> str:
    """Return the axes without the parts that are split off."""
    return "".join(t for t in tokens(name) if t.isupper())


def is_blocked(name: str) -> bool:
    """Check for an axis that is split."""
    return axes(name) != name


def factor(name: str, axis: str) -> int:
    """Return how many elements of an axis are split off; 1 for none."""
    found = 1
    for token in tokens(name):
        if token[-1] == axis.lower():
            found *= int(token[:-1])
    return found


def is_whole(name: str) -> bool:
    """Check that each part that is split off has its axis."""
    return all(t.isupper() or t[-1].upper() in name for t in tokens(name))


def unsplit(name: str, axis: str) -> str:
    """Return the layout with parts of size 1 split off an axis."""
    return "".join(f"1{t[-1]}" if t[-1] == axis.lower() else t for t in tokens(name))


def last(name: str, count: int) -> str:
    """Return the layout of the last dimensions."""
    parts = tokens(name)
    return "".join(parts[len(parts) - count :])


def index(name: str, axis: str) -> int:
    """Return the dimension of an axis."""
    return tokens(name).index(axis)


def is_convertible(source: str, target: str) -> bool:
    """Check for two layouts of the same axes."""
    return bool(source) and sorted(axes(source)) == sorted(axes(target))


def expanded(source: str, target: str) -> str:
    """Put the axes that a layout lacks in front, in the order of another one."""
    return "".join(a for a in axes(target) if a not in source) + source


def renamed(name: str, source: str, target: str) -> str:
    """Return a layout in the letters of another name for the same dimensions.

    Args:
        name: The layout of a value now.
        source: That which the value had, in the letters of `name`.
        target: What an operator calls the value that it had: "NCWH" of a transposed value is
            "NCHW" to a convolution.
    """
    if source == target or len(source) != len(target) or is_blocked(source) or is_blocked(target):
        return name
    letters = source + source.lower(), target + target.lower()
    return name.translate(str.maketrans(*letters))
