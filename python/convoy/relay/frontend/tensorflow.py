"""`relay.frontend.tensorflow`: the importer under its own module."""

from convoy.relay.frontend.converted import from_tensorflow

__all__ = ["from_tensorflow"]
