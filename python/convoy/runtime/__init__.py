"""Python interface of the C++ runtime: the library, its modules, and the GPU."""

from .device import check_device, current_device, present_device
from .library import function, load_runtime, load_tvm_backends, status
from .module import create_module

__all__ = [
    "check_device",
    "create_module",
    "current_device",
    "function",
    "load_runtime",
    "load_tvm_backends",
    "present_device",
    "status",
]
