"""Devices as annotations of a program name them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from convoy.errors import InvalidOption
from convoy.relay.lazy import tvm

# DLPack's number for "any device".
_ANY = -1


@dataclass(frozen=True)
class VirtualDevice:
    """A device, a target and a kind of memory, each of which may be open.

    Attributes:
        device: The TVM device, None for any.
        target: The target, None for any.
        memory_scope: The kind of memory, "" for any.
    """

    device: Any = None
    target: Any = None
    memory_scope: str = ""

    @property
    def device_type_int(self) -> int:
        """The type of the device by DLPack's numbers (1 is the CPU, 2 is CUDA), -1 for any."""
        return _ANY if self.device is None else int(self.device.dlpack_device_type())

    @property
    def virtual_device_id(self) -> int:
        """The number of the device among those of its type, -1 for any."""
        return _ANY if self.device is None else int(self.device.index)


def virtual_device(device: Any) -> VirtualDevice:
    """Return the virtual device of a TVM device or of its name.

    Raises:
        InvalidOption: Neither of them.
    """
    if isinstance(device, VirtualDevice):
        return device
    if isinstance(device, str):
        try:
            device = tvm.device(device)
        except (ValueError, RuntimeError):
            raise InvalidOption(f"device '{device}'", "a name such as 'cpu' or 'cuda'") from None
    if not hasattr(device, "dlpack_device_type"):
        raise InvalidOption(f"a {type(device).__name__}", "a TVM device or its name")
    return VirtualDevice(device)
