"""Modules compiled for the CPU by TVM's own pipeline, for their values alone."""

from __future__ import annotations

import tvm
from tvm import relax

#: Without LLVM's optimizations, which take longer than small networks run.
_TARGET = {"kind": "llvm", "opt-level": 0}


def machine(mod: tvm.IRModule) -> relax.VirtualMachine:
    """Compile a module. Constants are computed at run time: TVM would compile a kernel for each."""
    with tvm.transform.PassContext(disabled_pass=["FoldConstant"]):
        executable = tvm.compile(mod, tvm.target.Target(_TARGET))
    return relax.VirtualMachine(executable, tvm.cpu())
