"""Attributes of functions."""

from __future__ import annotations

from typing import Any

from convoy.relay.types import Size


class FunctionAttrs(dict[str, Any]):
    """Attributes of a function: `attrs["Composite"]` or `attrs.Composite`."""

    def __getattr__(self, name: str) -> Any:
        try:
            value = self[name]
        except KeyError:
            raise AttributeError(f"the function has no attribute '{name}'") from None
        return Size(value) if type(value) is int else value

    def get_int(self, key: str) -> int:
        """Return an attribute that is an integer."""
        return int(self[key])

    def get_str(self, key: str) -> str:
        """Return an attribute that is a text."""
        return str(self[key])


def plain_value(value: Any) -> Any:
    """Return the number or text of TVM's IntImm or StringImm, anything else as it is."""
    found = getattr(value, "value", value)
    return found if type(found) in (bool, int, float, str) else value
