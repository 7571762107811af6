"""`relay.backend`: the executors and runtimes that scripts pass to `relay.build`."""

from convoy.relay.backend import executor, executor_factory, interpreter, runtime, vm
from convoy.relay.backend.kinds import Executor, Runtime

__all__ = [
    "Executor",
    "Runtime",
    "executor",
    "executor_factory",
    "interpreter",
    "runtime",
    "vm",
]
