"""The printer as nodes call it: it needs their classes, and therefore registers itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# The one printer: `printer.astext`.
Printer = Callable[[Any, bool], str]
_printers: list[Printer] = []


def register_printer(function: Printer) -> Printer:
    """Make a function the printer of modules and expressions."""
    _printers[:] = [function]
    return function


def print_text(node: Any, show_meta_data: bool = True) -> str:
    """Print a module or an expression as Relay text; see `printer.astext`."""
    return _printers[0](node, show_meta_data)
