"""`relay.backend.runtime.Runtime`, under its former path."""

from convoy.relay.backend.kinds import Runtime

__all__ = ["Runtime"]
