"""Relay text to syntax tree to module or expression."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Any

from lark import Lark
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from convoy.errors import RelaySyntaxError
from convoy.relay.ast import Expr
from convoy.relay.diagnostics import error_at
from convoy.relay.module import IRModule
from convoy.relay.source import Source, Span
from convoy.relay.text.comments import blank_comments
from convoy.relay.text.elaborate import Elaborator
from convoy.relay.text.types import Syntax

# How the terminals of grammar.lark are named in an error. Others are shown as they are written.
_TERMINALS = {
    "LOCAL": "a variable %name",
    "GRAPH": "a graph variable %0",
    "GLOBAL": "a function @name",
    "HNAME": "a name",
    "META": "meta[...][n]",
    "METADATA": "#[metadata]",
    "STRING": "a string",
    "NUMBER": "a number",
    "INF": "inff",
    "BOOL": "True or False",
    "ANY": "?",
    "EQUALITY": "==",
    "RELATION": "<",
    "SUM": "+",
    "PRODUCT": "*",
    "ADT": "type",
    "MATCH": "match",
    "REF": "ref",
}


@lru_cache(maxsize=1)
def _grammar() -> Lark:
    return Lark(
        files(__package__).joinpath("grammar.lark").read_text("utf-8"),
        parser="lalr",
        lexer="basic",
        start=["module", "lone_expr"],
        maybe_placeholders=False,
    )


def parse_module_text(
    source: Source, init_module: IRModule | None = None, meta_table: dict[str, Any] | None = None
) -> IRModule:
    """Parse a module; its types are not inferred."""
    return Elaborator(source, init_module, meta_table).module(_tree(source, "module"))


def parse_expr_text(source: Source, meta_table: dict[str, Any] | None = None) -> Expr:
    """Parse an expression; its types are not inferred."""
    return Elaborator(source, None, meta_table).lone_expr(_tree(source, "lone_expr"))


def _tree(source: Source, start: str) -> Syntax:
    try:
        return _grammar().parse(blank_comments(source), start=start)
    except UnexpectedInput as error:
        raise _syntax_error(source, error) from None


def _span(source: Source, line: int, column: int) -> Span:
    return Span(source.name, line, column=column, source=source)


def _syntax_error(source: Source, error: UnexpectedInput) -> RelaySyntaxError:
    line, column = error.line, error.column
    expected: set[str] = set()
    remedy = ""
    if isinstance(error, UnexpectedToken):
        token = error.token
        got = "the end of the text" if token.type == "$END" else f"unexpected '{_short(token)}'"
        if token.type == "$END":
            line, column = source.position(max(0, len(source.text.rstrip()) - 1))
        expected = set(error.accepts or error.expected)
        if token.type == "NUMBER" and token.startswith("-") and "SUM" in expected:
            remedy = f"To subtract, put a space behind the minus: - {token.lstrip('-')}"
        if (line, column) == (1, 1) and "__ANON_0" in expected:
            remedy = 'Relay text begins with #[version = "0.0.5"]'
    elif isinstance(error, UnexpectedCharacters):
        got = f"unexpected character {error.char!r}"
        if error.char == "'":
            remedy = 'Strings are written with double quotes: "text"'
        elif error.char == '"':
            remedy = "The string is not closed"
    else:
        got = str(error)
    return error_at(
        RelaySyntaxError, got, _span(source, line, column), _expectation(expected), remedy
    )


def _short(token: str) -> str:
    return token if len(token) <= 40 else token[:40] + "..."


def _expectation(terminals: set[str]) -> str:
    """Name at most eight terminals as a reader knows them."""
    literal = {t.name: t.pattern.value for t in _grammar().terminals if t.pattern.type == "str"}
    names = [
        f"'{literal[t]}'" if t in literal else _TERMINALS.get(t, "") for t in sorted(terminals)
    ]
    names = [n for n in names if n]
    shown = sorted(set(names))
    if len(shown) > 8:
        shown = [*shown[:8], "..."]
    return ", ".join(shown)
