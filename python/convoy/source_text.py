"""Headers of the project as one text, with the headers that they include in place."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from . import paths

_INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+)"')


def expanded(header: Path) -> list[str]:
    """The text of a header, in parts, with the project's own includes where they first appear.

    Includes are looked up beside the including file, then in ``include_dir()``; what is in neither
    place (CUTLASS, CUDA) is not the project's.
    """
    return _expand(header.resolve(), set())


def _expand(header: Path, seen: set[Path]) -> list[str]:
    seen.add(header)
    texts: list[str] = []
    for part in _parts(header, header.stat().st_mtime_ns):
        if isinstance(part, str):
            texts.append(part)
        elif part not in seen:
            texts += _expand(part, seen)
    return texts


@functools.lru_cache(maxsize=256)
def _parts(header: Path, written: int) -> list[str | Path]:
    """The text of a header that was ``written`` at a time, and its own includes, in order."""
    parts: list[str | Path] = []
    lines: list[str] = []
    for line in header.read_text(encoding="utf-8").splitlines():
        included = own_include(header, line)
        if included is None:
            lines.append(line)
        else:
            parts += ["\n".join(lines), included]
            lines = []
    return [*parts, "\n".join(lines)]


def own_include(header: Path, line: str) -> Path | None:
    """The project's header that a line of a header includes; None if it includes none."""
    if (match := _INCLUDE.match(line)) is None:
        return None
    own = (folder / match[1] for folder in (header.parent, paths.include_dir()))
    return next((path.resolve() for path in own if path.is_file()), None)
