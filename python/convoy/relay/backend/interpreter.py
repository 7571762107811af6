"""`relay.backend.interpreter`: what executors return, under the names of 2019 as well."""

from typing import Any

from convoy.relay.adt import ADT as TupleValue
from convoy.relay.adt import ConstructorValue, RefValue
from convoy.relay.executor import Executor
from convoy.relay.executor import Executor as Interpreter
from convoy.relay.lazy import tvm

__all__ = ["ConstructorValue", "Executor", "Interpreter", "RefValue", "TupleValue"]


def __getattr__(name: str) -> Any:
    if name == "TensorValue":
        return tvm.runtime.Tensor
    raise AttributeError(f"relay.backend.interpreter has no {name}")
