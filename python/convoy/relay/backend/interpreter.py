"""`relay.backend.interpreter`: values of algebraic data types and references."""

from convoy.relay.adt import ConstructorValue, RefValue
from convoy.relay.executor import Executor

__all__ = ["ConstructorValue", "Executor", "RefValue"]
