"""`relay.backend`: the executors and runtimes that scripts pass to `relay.build`."""

from convoy.relay.backend.kinds import Executor, Runtime

__all__ = ["Executor", "Runtime"]
