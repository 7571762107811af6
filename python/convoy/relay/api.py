"""Reading and printing under the names that TVM 0.18 gave them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy.errors import RelaySyntaxError
from convoy.relay.ast import Expr
from convoy.relay.infer import infer_module
from convoy.relay.module import IRModule
from convoy.relay.source import Source


def parse(
    source: str,
    source_name: str = "from_string",
    init_module: IRModule | None = None,
    init_meta_table: dict[str, Any] | None = None,
) -> IRModule:
    """A module from its text, with all types inferred.

    Arguments:
        source: text that begins with `#[version = "0.0.5"]`.
        source_name: the name to show in errors.
        init_module: functions that the text may call besides its own.
        init_meta_table: what `meta[key][n]` stands for where the text has no metadata section.

    Raises:
        RelaySyntaxError: text that does not parse.
        RelayTypeError: shapes or dtypes that do not fit.
        UnsupportedOp: an operator that does not exist or that convoy does not support.
    """
    from convoy.relay.text import parse_module_text

    text = Source(source_name, _text(source))
    return infer_module(parse_module_text(text, init_module, init_meta_table))


def fromtext(source: str, source_name: str = "from_string") -> IRModule:
    """As `parse`."""
    return parse(source, source_name)


def parse_expr(source: str, source_name: str = "from_string") -> Expr:
    """One expression from its text, without type inference; the version line may be missing."""
    from convoy.relay.text import parse_expr_text

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


def to_relax(mod: Any, params: Mapping[str, Any] | None = None, func_name: str = "main") -> Any:
    """The Relax module of a Relay one; see `convert.engine.to_relax`."""
    from convoy.relay.convert import to_relax as convert

    return convert(mod, params, func_name)
