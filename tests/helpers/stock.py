"""Modules compiled for the CPU by TVM's own pipeline, for their values alone."""

from __future__ import annotations

import tvm
from tvm import relax

#: Without LLVM's optimizations, which take longer than small networks run.
_TARGET = {"kind": "llvm", "opt-level": 0}


def compiled(mod: tvm.IRModule) -> tvm.runtime.Executable:
    """Compile a module. Constants are computed at run time: TVM would compile a kernel for each.
    Kernels do not check their arguments, which would be most of their code."""
    unchecked = {"tirx.disable_assert": True}
    with tvm.transform.PassContext(config=unchecked, disabled_pass=["FoldConstant"]):
        return tvm.compile(mod, tvm.target.Target(_TARGET))


def machine(mod: tvm.IRModule) -> relax.VirtualMachine:
    """Compile a module of Relax."""
    return relax.VirtualMachine(compiled(mod), tvm.cpu())
