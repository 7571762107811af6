"""Source texts, spans, and errors rendered at their place.

A rendered error shows file, line and column, the line itself, and a caret under the column:

    model.relay:3:8: unknown operator 'nn.rellu'
      3 |   %0 = nn.rellu(%x);
        |        ^
"""

from __future__ import annotations

import difflib
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

# A line longer than this is cut around the caret: a printed network's first line has all
# parameters in it and runs to tens of kilobytes.
_MAX_LINE = 120


@dataclass(frozen=True, eq=False)
class Source:
    """A text with its name."""

    name: str
    text: str

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        at = self.text.find("\n")
        while at >= 0:
            starts.append(at + 1)
            at = self.text.find("\n", at + 1)
        return starts

    def position(self, offset: int) -> tuple[int, int]:
        """Return line and column, both from 1, of a character offset."""
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """Return a line, counted from 1, without its end."""
        starts = self._line_starts
        if not 1 <= number <= len(starts):
            return ""
        end = starts[number] - 1 if number < len(starts) else len(self.text)
        return self.text[starts[number - 1] : end].rstrip("\r")


class SourceName(str):
    """The name of a source text."""

    @property
    def name(self) -> str:
        """The name."""
        return str(self)


@dataclass(frozen=True)
class Span:
    """The place of an expression. Arguments are in TVM's order: both lines, then both columns.

    Attributes:
        source: The text, where it is at hand.
        binding: The variable that the expression is bound to, such as `%3`, or "".
    """

    source_name: str | None
    line: int
    end_line: int = 0
    column: int = 0
    end_column: int = 0
    source: Source | None = field(default=None, compare=False, repr=False)
    binding: str = field(default="", compare=False, repr=False)

    def same_as(self, other: object) -> bool:
        """Check for the very same place."""
        return self is other

    def __str__(self) -> str:
        return f"{self.source_name}:{self.line}:{self.column}"


def caret(source: Source | None, line: int, column: int) -> str:
    """Render a line with a caret under the column; empty where the text is not at hand."""
    text = source.line(line) if source else ""
    if not text:
        return ""
    start = 0
    if len(text) > _MAX_LINE:
        start = max(0, min(column - 1 - _MAX_LINE // 2, len(text) - _MAX_LINE))
    shown = text[start : start + _MAX_LINE].replace("\t", " ")
    before, after = "..." if start else "", "..." if start + _MAX_LINE < len(text) else ""
    number = str(line)
    indent = " " * (len(before) + column - 1 - start)
    return f"\n  {number} | {before}{shown}{after}\n  {' ' * len(number)} | {indent}^"


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggest the known names closest to `name`: "Did you mean 'x' or 'y'?", or an empty string."""
    if len(name) > 64:  # the comparison is quadratic, and nothing known is that long
        return ""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.7)
    # An operator written without its namespace: `relu` for `nn.relu`.
    close += [
        n for n in names if n.rpartition(".")[2] == name.rpartition(".")[2] and n not in close
    ]
    if not close:
        return ""
    return "Did you mean " + " or ".join(f"'{n}'" for n in close[:3]) + "?"
