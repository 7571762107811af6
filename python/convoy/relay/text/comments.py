"""Blanking comments, up to the metadata section."""

from __future__ import annotations

import re

from convoy.errors import RelaySyntaxError
from convoy.relay.diagnostics import error_at
from convoy.relay.source import Source, Span

# What may hold a comment's start without being one: strings, and names with slashes in them.
_TOKENS = re.compile(r'"[^"]*"|//[^\n]*|/\*|#\[metadata\]|[%@]?[A-Za-z_](?:[\w.]|/(?![/*]))*')
_INSIDE = re.compile(r"/\*|\*/")


def blank_comments(source: Source) -> str:
    """Replace every comment by spaces, so that all positions stay.

    `//` runs to the end of the line; `/* */` nests. The metadata section is left as it is.

    Raises:
        RelaySyntaxError: A comment that is not closed.
    """
    text = source.text
    parts: list[str] = []
    kept = at = 0  # text[:kept] is in `parts`; the search goes on from `at`
    while match := _TOKENS.search(text, at):
        start, token = match.start(), match.group()
        if token == "#[metadata]":
            break
        at = match.end()
        if token.startswith("//"):
            end = at
        elif token.startswith("/*"):
            end = _close(source, start)
        else:
            continue
        parts += [text[kept:start], _spaces(text[start:end])]
        kept = at = end
    parts.append(text[kept:])
    return "".join(parts)


def _close(source: Source, start: int) -> int:
    """Return the offset after the comment that opens at `start`."""
    depth, at = 1, start + 2
    while depth:
        match = _INSIDE.search(source.text, at)
        if match is None:
            line, column = source.position(start)
            raise error_at(
                RelaySyntaxError,
                "a comment that is not closed",
                Span(source.name, line, column=column, source=source),
                "*/",
            )
        depth += 1 if match.group() == "/*" else -1
        at = match.end()
    return at


def _spaces(comment: str) -> str:
    return re.sub(r"[^\n]", " ", comment)
