"""TVM's modules, imported on first use: reading, typing and printing Relay needs no TVM."""

from __future__ import annotations

import importlib
from typing import Any


class _LazyModule:
    """A module that is imported when the first of its attributes is read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(importlib.import_module(self._name), attribute)
        setattr(self, attribute, value)  # the next access does not come here
        return value


relax: Any = _LazyModule("tvm.relax")
tvm: Any = _LazyModule("tvm")
ir: Any = _LazyModule("tvm.ir")
sym: Any = _LazyModule("tvm.sym")
te: Any = _LazyModule("tvm.te")
tirx: Any = _LazyModule("tvm.tirx")
topi: Any = _LazyModule("tvm.topi")
