"""Places, metadata and literals of one text, for its elaboration."""

from __future__ import annotations

from typing import Any

from lark import Token, Tree

from convoy.errors import ConvoyError, RelaySyntaxError
from convoy.relay.diagnostics import error_at, place
from convoy.relay.json_format import load_metadata
from convoy.relay.source import Source, Span
from convoy.relay.text.literals import BadNumber, as_attribute, parse_number
from convoy.relay.text.types import Syntax

VERSION = "0.0.5"
_MAX_LISTS = 16


class TextReader:
    """Read places, metadata and literals, which need no variables.

    Args:
        source: The text, for places in errors.
        meta_table: The objects of `meta[key][n]`, for text without a metadata section.
    """

    def __init__(self, source: Source, meta_table: dict[str, Any] | None) -> None:
        self.source = source
        self.meta: dict[str, Any] = dict(meta_table or {})

    # ---- places

    def span(self, at: Syntax | Token) -> Span:
        """Return the place of a token, or of the first token of a tree."""
        tree, path = at, []
        while not isinstance(tree, Token):
            path.append(tree)
            found = getattr(tree, "first", None) or (tree.children[0] if tree.children else None)
            if found is None:
                return Span(self.source.name, 1, column=1, source=self.source)
            tree = found
        # Remembered, because an operator's place is that of its left operand, and so on down.
        for passed in path:
            passed.first = tree
        return Span(
            self.source.name,
            tree.line or 1,
            tree.end_line or 0,
            tree.column or 1,
            tree.end_column or 0,
            self.source,
        )

    def error(
        self, at: Syntax | Token, got: str, expected: str = "", remedy: str = ""
    ) -> ConvoyError:
        """Make a syntax error at a place."""
        return error_at(RelaySyntaxError, got, self.span(at), expected, remedy)

    # ---- version and metadata

    def check_version(self, tree: Syntax) -> None:
        """Check the version of the text."""
        got = tree.children[-1][1:-1]
        if got != VERSION:
            raise error_at(
                RelaySyntaxError, f'Relay text of version "{got}"', self.span(tree), f'"{VERSION}"'
            )

    def read_metadata(self, children: list[Any]) -> None:
        """Read the metadata section, which is the last child if there is one."""
        if children and isinstance(children[-1], Token):
            token = children.pop()
            try:
                self.meta.update(load_metadata(token.partition("]")[2]))
            except ConvoyError as error:
                raise place(error, self.span(token)) from None

    def meta_object(self, token: Token) -> Any:
        """Return the object of `meta[key][index]`."""
        key, index = str(token)[5:-1].split("][")
        table = self.meta.get(key)
        if table is None:
            raise self.error(
                token,
                f"{token}, but the text has no metadata for {key}",
                remedy="Print with show_meta_data=True, or pass init_meta_table",
            )
        if len(index) > 9 or int(index) >= len(table):
            raise self.error(token, f"{token}, but there are {len(table)} of {key}")
        return table[int(index)]

    # ---- literals

    def number(self, tree: Syntax) -> tuple[Any, str]:
        """Return the value and the dtype of a number."""
        try:
            return parse_number(str(tree.children[0]))
        except BadNumber as bad:
            raise self.error(tree, bad.got, bad.expected, bad.remedy) from None

    def attribute(self, tree: Syntax, depth: int = 0) -> Any:
        """Return the value of an attribute."""
        kind = tree.data
        if kind == "attr_list":
            if depth > _MAX_LISTS:
                raise self.error(tree, f"lists nested over {_MAX_LISTS} deep")
            return tuple(self.attribute(child, depth + 1) for child in tree.children)
        if kind == "number":
            return as_attribute(*self.number(tree))
        if kind == "bool":
            return tree.children[0] == "True"
        if kind == "string":
            return str(tree.children[0])[1:-1]
        if kind == "meta":
            return self.meta_object(tree.children[0])
        if str(tree.children[0]) in ("None", "nullptr"):
            return None
        raise self.error(
            tree, f"attribute value '{tree.children[0]}'", "a number, a string, a list or None"
        )


def is_rule(item: Any, rule: str) -> bool:
    """Check whether an item is a tree of a grammar rule."""
    return isinstance(item, Tree) and item.data == rule
