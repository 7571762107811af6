"""Errors that show their place in the source."""

from __future__ import annotations

from typing import TypeVar

from convoy.errors import ConvoyError
from convoy.relay.source import Span, caret

E = TypeVar("E", bound=ConvoyError)


def error_at(
    cls: type[E], message: str, span: Span | None, expected: str = "", remedy: str = ""
) -> E:
    """Make an error with file, line, column, the source line and a caret.

    Args:
        cls: The class of the error.
        message: What was found; becomes its attribute `got`.
        span: The place, which becomes its attribute `span`; None for no place.
        expected, remedy: What was expected and what to do.
    """
    text = message
    if expected:
        text += f"; expected {expected}"
    if remedy:
        text += f". {remedy}"
    if span is not None:
        text = f"{span}: {text}{caret(span.source, span.line, span.column)}"
    error = cls(text)
    error.got, error.expected, error.remedy = message, expected, remedy
    error.span = span  # type: ignore[attr-defined]
    return error


def place(error: ConvoyError, span: Span | None) -> ConvoyError:
    """Return the error with a place, unless it has one already."""
    if getattr(error, "span", None) is not None or span is None:
        return error
    return error_at(type(error), error.got, span, error.expected, error.remedy)
