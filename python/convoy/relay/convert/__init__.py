"""Relay to Relax.

`canonicalize` expands operators that stand for several, `engine` walks a module and applies the
converters that `relay.ops` registers.
"""

from convoy.relay.convert.engine import supported_ops, to_relax

__all__ = ["supported_ops", "to_relax"]
