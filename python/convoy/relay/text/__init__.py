"""Reading Relay text: `parser` makes a syntax tree, `elaborate` makes expressions of it."""

from convoy.relay.text.parser import parse_expr_text, parse_module_text

__all__ = ["parse_expr_text", "parse_module_text"]
