"""The registered patterns: the built-in ones first, then those of packages and backends by name."""

from __future__ import annotations

import functools
from importlib.metadata import entry_points

from ...errors import InvalidOption
from .attention import AttentionPattern
from .base import Pattern
from .bottleneck import BottleneckPattern
from .branches import Branches
from .epilogue import ConvEpilogue
from .expand_depthwise import ExpandDepthwisePattern
from .squeeze_excite import SqueezeExcitePattern
from .stem import StemPattern

GROUP = "convoy.patterns"

_added: dict[str, Pattern] = {}


def register(pattern: Pattern) -> None:
    """Add a pattern for the life of the process; one of the same class and name is replaced.

    Raises InvalidOption for a name that another class of pattern has.
    """
    name = getattr(pattern, "name", "")
    if not name or any(character in name for character in "#. "):
        raise InvalidOption(f"a pattern named {name!r}", "a name without spaces, # and dots")
    known = next((p for p in registered() if p.name == name), None)
    if known is not None and type(known) is not type(pattern):
        raise InvalidOption(f"a second pattern named {name!r}", "a name of its own")
    _added[name] = pattern


def unregister(name: str) -> None:
    """Remove a pattern that :func:`register` added; has no effect if there is none of that name."""
    _added.pop(name, None)


def registered() -> list[Pattern]:
    """Return all patterns in the order in which they are tried: the built-in ones, then by name."""
    others = {**_from_packages(), **_added}
    return [*_built_in(), *(others[name] for name in sorted(others))]


@functools.cache
def _built_in() -> tuple[Pattern, ...]:
    return (
        ConvEpilogue(),
        Branches(),
        AttentionPattern(),
        StemPattern(),
        ExpandDepthwisePattern(),
        BottleneckPattern(),
        SqueezeExcitePattern(),
    )


@functools.cache
def _from_packages() -> dict[str, Pattern]:
    found = [entry.load()() for entry in entry_points(group=GROUP)]
    return {pattern.name: pattern for pattern in found}
