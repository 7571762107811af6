"""Tables of patterns by compiler, for MergeComposite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Table = list[tuple[Any, ...]]
_tables: dict[str, Callable[[], Table]] = {}


def register_pattern_table(compiler: str, table: Callable[[], Table] | None = None) -> Any:
    """Register a function that returns the patterns of a compiler; a decorator without one."""

    def register(function: Callable[[], Table]) -> Table:
        _tables[compiler] = function
        return function()

    return register if table is None else register(table)


def get_pattern_table(compiler: str) -> Table | None:
    """Return the patterns of a compiler, None where none are registered."""
    function = _tables.get(compiler)
    return None if function is None else function()
