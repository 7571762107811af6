"""`tvm.ir.EnvFunc`: functions by name, such as the relations of types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm

from convoy.errors import RemovedFromTvm

# The relations of Relay's operators, which are type rules of `relay.ops` today.
_RELATIONS = "tvm.relay.type_relation."


@dataclass(frozen=True)
class EnvFunc:
    """A function by name.

    Attributes:
        name: Its name.
    """

    name: str

    @staticmethod
    def get(name: str) -> Any:
        """Return a function of TVM, or the name of a relation between types."""
        return EnvFunc(name) if name.startswith(_RELATIONS) else tvm.ir.EnvFunc.get(name)

    def __call__(self, *args: Any) -> Any:
        raise RemovedFromTvm(f"{self.name} is no longer part of TVM", "relay.transform.InferType")
