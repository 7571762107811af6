"""Compile kernels; one that does not compile falls back to a simpler schedule.

Kernels are compiled one by one only if the module fails to compile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import tvm
from tvm import te, tirx

from ..tir.rules import schedule_kernels, simpler, why, without_source
from . import codegen, cuda_headers, cuda_source
from .programmatic import pipeline

B = TypeVar("B")


def build_kernels(functions: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
    """Compile the functions of a module into one runtime module.

    Arguments are not checked: the virtual machine passes tensors of the declared types, and checks
    of hundreds of arguments are half of the compile time of a training step.
    """
    cuda_source.register()
    context = tvm.transform.PassContext(config={"tirx.disable_assert": True})
    with target, context, cuda_headers.visible():
        return codegen.build(without_source(functions), target, pipeline(target))


def compiled(
    mod: tvm.IRModule, target: tvm.target.Target, build: Callable[[tvm.IRModule], B]
) -> tuple[B, tvm.IRModule]:
    """``build(mod)``, and the module that was built: ``mod``, or a copy of it in which kernels that
    do not compile have simpler schedules.

    Raises UnsupportedOp for a kernel that no schedule makes compile, and the error of ``build``
    where every kernel compiles alone.
    """
    try:
        return build(mod), mod
    except Exception as err:
        repaired = _repaired(mod, target)
        if repaired is None:
            raise err
    return build(repaired), repaired


def _repaired(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule | None:
    """A module in which every kernel compiles; None if ``mod`` is such a module, or if the
    compilers do not work at all."""
    if not _compiles_anything(target):
        return None
    replaced = {}
    for var, func in mod.functions_items():
        if isinstance(func, tirx.PrimFunc):
            working = _working(func, target, var.name_hint)
            if working is not func:
                replaced[var] = working
    if not replaced:
        return None
    return tvm.IRModule({**dict(mod.functions_items()), **replaced}, attrs=mod.attrs)


def _working(func: tirx.PrimFunc, target: tvm.target.Target, name: str) -> tirx.PrimFunc:
    """``func``, or the same by the first simpler schedule that compiles."""
    while (reason := _failure(func, target)) is not None:
        func = simpler(func, target, name, reason)
    return func


def _failure(func: tirx.PrimFunc, target: tvm.target.Target) -> str | None:
    """The reason why a function does not compile; None if it does."""
    named = func.with_attr("global_symbol", "kernel")
    try:
        build_kernels(tvm.IRModule({"kernel": named}), target)
    except Exception as err:  # TVM's errors have no base class but this one
        return why(err)
    return None


def _compiles_anything(target: tvm.target.Target) -> bool:
    """Whether the compilers work: an element-wise kernel compiles."""
    x = te.placeholder((64,), "float32", name="x")
    y = te.compute((64,), lambda i: x[i] + 1, name="y")
    mod = tvm.IRModule({"kernel": te.create_prim_func([x, y])})
    if target.kind.name == "cuda":
        with target:
            mod = schedule_kernels(target)(mod)
    return _failure(mod["kernel"], target) is None
