"""Reading Relay text under the names that TVM 0.18 gave it."""

from __future__ import annotations

from typing import Any

from convoy.errors import RelaySyntaxError
from convoy.relay.ast import Expr
from convoy.relay.collection import without_collection
from convoy.relay.infer import infer_module
from convoy.relay.module import IRModule
from convoy.relay.source import Source


@without_collection
def parse(
    source: str,
    source_name: str = "from_string",
    init_module: IRModule | None = None,
    init_meta_table: dict[str, Any] | None = None,
) -> IRModule:
    """Read a module from Relay text and infer its types.

    Args:
        source: Text that begins with `#[version = "0.0.5"]`.
        source_name: The name to show in errors.
        init_module: Functions that the text may call besides its own.
        init_meta_table: The objects of `meta[key][n]`, for text without a metadata section.

    Raises:
        RelaySyntaxError: Text that does not parse.
        RelayTypeError: Shapes or dtypes that do not fit.
        UnsupportedOp: An operator that does not exist or that Convoy does not support.
    """
    from convoy.relay.text import parse_module_text  # loads the grammar

    text = Source(source_name, _text(source))
    return infer_module(parse_module_text(text, init_module, init_meta_table))


def fromtext(source: str, source_name: str = "from_string") -> IRModule:
    """Read a module from Relay text; see `parse`."""
    return parse(source, source_name)


@without_collection
def parse_expr(source: str, source_name: str = "from_string") -> Expr:
    """Read one expression from Relay text, without type inference; the version line is optional."""
    from convoy.relay.text import parse_expr_text  # loads the grammar

    return parse_expr_text(Source(source_name, _text(source)))


def _text(source: Any) -> str:
    if isinstance(source, bytes):
        try:
            return source.decode("utf-8")
        except UnicodeDecodeError as bad:
            raise RelaySyntaxError(f"bytes that are no text (at {bad.start})", "UTF-8") from None
    if not isinstance(source, str):
        raise RelaySyntaxError(f"a {type(source).__name__}", "text")
    return source
