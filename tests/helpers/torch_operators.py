"""PyTorch's list of operators, which each export makes anew, once for each namespace."""

from __future__ import annotations

import functools
import sys

_MODULE = "torch._export.utils"


@functools.cache
def _register(module: object) -> None:
    torch = sys.modules["torch"]
    materialize = module._materialize_cpp_cia_ops
    known: list[str] = []

    def materialize_new() -> None:
        nonlocal known
        found = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
        if found != known:
            materialize()
            known = found

    module._materialize_cpp_cia_ops = materialize_new


def list_once() -> None:
    """Look up those operators again only where some were registered since."""
    module = sys.modules.get(_MODULE)
    if hasattr(module, "_materialize_cpp_cia_ops"):
        _register(module)
