"""`requantize_config`: how requantizations round and compute that do not say so themselves."""

from __future__ import annotations

from contextvars import Token
from typing import Any

from convoy.errors import InvalidOption
from convoy.relay.ops.qnn_arithmetic import CONFIG

_KNOWN = {"rounding": ("UPWARD", "TONEAREST"), "compute_dtype": ("int64", "float32", "float64")}


class RequantizeConfig:
    """A context: `with requantize_config(rounding="TONEAREST"): relay.build(mod, ...)`.

    Attributes:
        rounding: "UPWARD" or "TONEAREST".
        compute_dtype: "int64", "float32" or "float64".
    """

    def __init__(self, rounding: str = "UPWARD", compute_dtype: str = "int64") -> None:
        for field, value in (("rounding", rounding), ("compute_dtype", compute_dtype)):
            if value not in _KNOWN[field]:
                raise InvalidOption(f"{field}='{value}'", ", ".join(_KNOWN[field]))
        self.rounding, self.compute_dtype = rounding, compute_dtype
        self._tokens: list[Token[tuple[str, str]]] = []

    def __enter__(self) -> RequantizeConfig:
        self._tokens.append(CONFIG.set((self.rounding, self.compute_dtype)))
        return self

    def __exit__(self, *error: object) -> None:
        CONFIG.reset(self._tokens.pop())


def requantize_config(**options: Any) -> RequantizeConfig:
    """Make a RequantizeConfig, which a `with` statement makes the current one."""
    return RequantizeConfig(**options)


def current_requantize_config() -> RequantizeConfig:
    """Return the configuration of the innermost `with` statement, or the default."""
    return RequantizeConfig(*CONFIG.get())
