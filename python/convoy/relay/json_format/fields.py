"""Type key of a node, and its fields in TVM's order, for the writer."""

from __future__ import annotations

from typing import Any

from convoy.relay.virtual_device import VirtualDevice

#: A field's name and content: Raw text, Data, or an object that becomes a node of its own.
Fields = list[tuple[str, Any]]


class Raw(str):
    """Text that is written to the file as it is."""


class Data:
    """A field that holds a tensor."""

    def __init__(self, value: Any) -> None:
        self.value = value


#: The unconstrained virtual device, which every expression of a plain module points at.
ANYWHERE = VirtualDevice()
