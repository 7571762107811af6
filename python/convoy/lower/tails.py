"""Fuse reductions with the element-wise operators behind them.

FuseOps puts what a reduction reads into its kernel, or what reads it, by how the reduction is
marked, never both. So it runs twice: the second time for reductions, now with what they read, and
functions of their results element by element.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx

_PATTERN, _OWN = "op_pattern", "convoy.own_pattern"
ELEMENTWISE, BROADCAST, INJECTIVE, REDUCTION, FUSABLE, _OPAQUE, _NONE = 0, 1, 2, 3, 4, 8, -1


@tvm.transform.module_pass(opt_level=0, name="FuseTails")
def fuse_tails(mod: tvm.IRModule, _context: object) -> tvm.IRModule:
    """Fuse the kernels of a module that FuseTIR made."""
    marked = relax.transform.AnnotateTIROpPattern()(mod)
    patterns = {var: _pattern(f) for var, f in kernels_of(marked).items()}
    if not {FUSABLE, ELEMENTWISE} <= set(patterns.values()):
        return mod
    return fuse_as(marked, patterns)


def kernels_of(mod: tvm.IRModule) -> dict[tvm.ir.GlobalVar, tirx.PrimFunc]:
    """Return the kernels of a module."""
    return {var: f for var, f in mod.functions_items() if isinstance(f, tirx.PrimFunc)}


def fuse_as(mod: tvm.IRModule, patterns: dict[tvm.ir.GlobalVar, int]) -> tvm.IRModule:
    """Fuse the kernels of a module by the patterns given, and no others. Those that are left as
    they are keep their own patterns."""
    functions = dict(mod.functions_items())
    for var, func in kernels_of(mod).items():
        own = int(func.attrs[_PATTERN]) if func.attrs and _PATTERN in func.attrs else _NONE
        functions[var] = func.with_attr({_PATTERN: patterns.get(var, _OPAQUE), _OWN: own})
    marked = tvm.IRModule(functions, attrs=mod.attrs)
    fused = tvm.transform.Sequential([relax.transform.FuseOps(), relax.transform.FuseTIR()])(marked)
    for var, func in kernels_of(fused).items():
        if func.attrs and _OWN in func.attrs:
            own, func = int(func.attrs[_OWN]), func.without_attr(_OWN)
            fused[var] = (
                func.without_attr(_PATTERN) if own == _NONE else func.with_attr(_PATTERN, own)
            )
    return fused


def _pattern(func: tirx.PrimFunc) -> int:
    """Return the part of a function: a reduction, behind one, or none."""
    found = int(func.attrs[_PATTERN]) if _PATTERN in func.attrs else _OPAQUE
    if found in (REDUCTION, FUSABLE):
        return FUSABLE if reduces_once(func) else _OPAQUE
    if found != ELEMENTWISE:
        return _OPAQUE
    shapes = {tuple(map(str, param.shape)) for param in func.params if hasattr(param.ty, "shape")}
    return ELEMENTWISE if len(shapes) == 1 else _OPAQUE


def reduces_once(func: tirx.PrimFunc) -> bool:
    """Whether a function has one reduction, to one result."""
    written: list[int] = []

    def visit(block: s_tir.SBlock) -> None:
        if block.init is not None:
            written.append(len(block.writes))

    tvm_ffi.structural_walk(func.body, [(s_tir.SBlock, visit)])
    return written == [1]
