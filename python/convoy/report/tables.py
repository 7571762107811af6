"""Tables of rows as plain text, markdown, or for a terminal.

Rows are sequences of cells, or dataclasses of which each column takes an attribute. Numbers are
aligned on the right, and a column of numbers has one count of digits.
"""

from __future__ import annotations

import functools
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

MISSING = "-"
_GAP = "  "
_NARROWEST = 6
_NUMBER = re.compile(r"[+-]?[\d,]*\.?\d+(e[+-]?\d+)?\s?(x|%|us|ms|s|KB|MB|GB)?", re.IGNORECASE)


@dataclass(frozen=True)
class Column:
    """A column of a table.

    ``get`` is the attribute (dots allowed) or function that takes the cell out of a dataclass
    row; sequences need none. ``unit`` is shown behind the title. Floats get ``digits`` decimals.
    """

    title: str
    get: str | Callable[..., object] | None = None
    unit: str = ""
    digits: int = 2

    @property
    def heading(self) -> str:
        return f"{self.title} [{self.unit}]" if self.unit else self.title

    def cell(self, row: object, index: int) -> str:
        """Text of this column's cell in a row."""
        if callable(self.get):
            return text(self.get(row), self.digits)
        if self.get:
            return text(functools.reduce(getattr, self.get.split("."), row), self.digits)
        return text(cast("Sequence[object]", row)[index], self.digits)


def text(value: object, digits: int = 2) -> str:
    """Return a cell on one line: None and empty text as a dash, booleans as yes and no."""
    if value is None or value == "":
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.{digits}f}"
    return printable(re.sub(r"\s*\n\s*", " ", str(value)))


def printable(value: object, keep: str = "") -> str:
    """Escape control characters, which a terminal would interpret, as in ``\\x1b``.

    Names of operators, kernels and GPUs come from untrusted files. Characters in ``keep``, such as
    a line feed, are not escaped.
    """
    string = str(value)
    if string.isprintable():
        return string
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in string
    )


@dataclass(frozen=True)
class _Grid:
    headings: list[str]
    rows: list[list[str]]
    numeric: list[bool]


def _grid(columns: Sequence[str | Column], rows: Iterable[object]) -> _Grid:
    made = [Column(c) if isinstance(c, str) else c for c in columns]
    cells = [[column.cell(row, i) for i, column in enumerate(made)] for row in rows]
    numeric = []
    for i in range(len(made)):
        filled = [row[i] for row in cells if row[i] != MISSING]
        numeric.append(bool(filled) and all(_NUMBER.fullmatch(cell) for cell in filled))
    return _Grid([column.heading for column in made], cells, numeric)


def plain(columns: Sequence[str | Column], rows: Iterable[object], width: int | None = None) -> str:
    """Return the table as lines of text under a ruled heading.

    ``width`` in characters folds long cells over several lines, but never numbers; 0 does not fold.
    The default is the width of the terminal; into a pipe or file nothing is folded.
    """
    if width is None:
        width = shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 0
    grid = _grid(columns, rows)
    widths = _widths(grid, width)
    lines = _lines(grid.headings, widths, grid.numeric)
    lines.append(_GAP.join("-" * w for w in widths))
    for row in grid.rows:
        lines += _lines(row, widths, grid.numeric)
    return "\n".join(lines)


def _widths(grid: _Grid, limit: int) -> list[int]:
    """Column widths; columns of text give way, the widest first, until the limit is met."""
    widths = [
        max(map(cell_len, [heading, *(row[i] for row in grid.rows)]))
        for i, heading in enumerate(grid.headings)
    ]
    if not limit:
        return widths
    least = [
        max([0, *(cell_len(row[i]) for row in grid.rows)]) if numeric else _NARROWEST
        for i, numeric in enumerate(grid.numeric)
    ]
    while sum(widths) + len(_GAP) * (len(widths) - 1) > limit:
        slack = [(w, i) for i, w in enumerate(widths) if w > max(least[i], 1)]
        if not slack:
            break  # a table of numbers wider than the terminal
        widths[max(slack)[1]] -= 1
    return widths


def _lines(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> list[str]:
    folded = [_fold(cell, width) for cell, width in zip(cells, widths, strict=True)]
    lines = []
    for i in range(max(map(len, folded), default=0)):
        parts = [column[i] if i < len(column) else "" for column in folded]
        blanks = [" " * (w - cell_len(part)) for part, w in zip(parts, widths, strict=True)]
        padded = [
            blank + part if right else part + blank
            for part, blank, right in zip(parts, blanks, numeric, strict=True)
        ]
        lines.append(_GAP.join(padded).rstrip())
    return lines


def _fold(cell: str, width: int) -> list[str]:
    if cell_len(cell) <= width:
        return [cell]
    # kernel names have no blanks: let them break behind their own separators
    spaced = re.sub(r"([_,;:/+])(?=\S)", "\\1\0", cell)
    pieces = re.split(r"\0", spaced)
    lines = [""]
    for piece in pieces:
        if len(lines[-1]) + len(piece) <= width:
            lines[-1] += piece
        else:
            lines += textwrap.wrap(piece, width) or [""]
    return [line.strip() for line in lines if line.strip()]


def markdown(columns: Sequence[str | Column], rows: Iterable[object]) -> str:
    """Return the table in GitHub's markdown."""
    grid = _grid(columns, rows)
    lines = ["| " + " | ".join(grid.headings) + " |"]
    lines.append("|" + "|".join(" ---: " if right else " --- " for right in grid.numeric) + "|")
    for row in grid.rows:
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    return "\n".join(lines)


def rich_table(columns: Sequence[str | Column], rows: Iterable[object], title: str = "") -> Table:
    """Return the table for a rich console; cells are taken literally, not as markup."""
    grid = _grid(columns, rows)
    table = Table(
        title=title or None, box=box.SIMPLE_HEAD, title_justify="left", padding=(0, 1, 0, 0),
        pad_edge=False, show_edge=False,
    )  # fmt: skip
    for heading, right in zip(grid.headings, grid.numeric, strict=True):
        justify: JustifyMethod = "right" if right else "left"
        table.add_column(Text(heading), justify=justify, overflow="fold", no_wrap=right)
    for row in grid.rows:
        table.add_row(*map(Text, row))
    return table


def show(
    columns: Sequence[str | Column],
    rows: Iterable[object],
    title: str = "",
    console: Console | None = None,
    width: int = 0,
) -> None:
    """Print a table: with colours and folding on a terminal, plain into a pipe.

    ``width`` in characters folds long cells into a pipe as well, and on wider terminals.
    """
    console = console or Console()
    rows = list(rows)
    if console.is_terminal:
        limit = min(console.width, width or console.width)
        console.print(rich_table(columns, rows, title), width=limit)
        return
    body = plain(columns, rows, width)
    console.file.write(f"{title}\n{body}\n" if title else f"{body}\n")
