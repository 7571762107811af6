"""`tvm.relay.base`: places in texts and printing under their former path."""

from convoy.relay.printer import astext, pretty_print
from convoy.relay.source import SourceName, Span

__all__ = ["SourceName", "Span", "astext", "pretty_print"]
