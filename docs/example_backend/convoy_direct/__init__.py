"""A backend for depthwise convolutions, and a pattern that sees average pools as such."""
