"""Print for people: names from files of others never reach the terminal as control sequences."""

from __future__ import annotations

import sys
from typing import TextIO

from ..report.tables import printable


def say(*lines: object, to_stderr: bool = False) -> None:
    """Print lines of text; line feeds and tabs are kept, other control characters are escaped."""
    stream: TextIO = sys.stderr if to_stderr else sys.stdout
    for line in lines:
        print(printable(line, keep="\n\t"), file=stream)
