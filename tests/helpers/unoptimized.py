"""LLVM without optimizations, and kernels that do not check their arguments, which is most of the
code of small ones, for targets that do not ask for a level. Convoy's own level is left out by the
fixture that enables it, ``_unoptimized`` in ``tests/conftest.py``.

Other tests compile as for a user: ``tests/lower``, ``tests/graph``, ``tests/test_pipeline.py``.
"""

from __future__ import annotations

import functools

import tvm
import tvm_ffi
from tvm import tirx

_BUILD = "target.build.llvm"
_LEVEL = "opt-level"

#: Whether targets are changed.
enabled = False
#: Whether kernels check their arguments all the same.
checks = False


@functools.cache
def register() -> None:
    """Put it in place of TVM's code generator, for the whole process."""
    build = tvm_ffi.get_global_func(_BUILD)

    def unoptimized(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
        options = target.export()
        if enabled and _LEVEL not in options:
            target = tvm.target.Target({**options, _LEVEL: 0})
            mod = mod if checks else tirx.transform.SkipAssert()(mod)
        return build(mod, target)

    tvm_ffi.register_global_func(_BUILD, unoptimized, override=True)
