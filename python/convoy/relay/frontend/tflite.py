"""`relay.frontend.tflite`: the importer under its own module."""

from convoy.relay.frontend.converted import from_tflite

__all__ = ["from_tflite"]
