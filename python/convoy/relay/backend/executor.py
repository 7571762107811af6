"""`relay.backend.executor.Executor`, under its former path."""

from convoy.relay.backend.kinds import Executor

__all__ = ["Executor"]
