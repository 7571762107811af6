"""Convert kernels that an importer has already lowered to TIR back to operators.

TVM's ONNX importer lowers Clip, Max, Min and constant Pad to TIR functions, which later passes
cannot analyse. These four are recognized by their bodies, not by their names; other kernels stay in
TIR and keep the layout and dtype of the model.
"""

from __future__ import annotations

from typing import ClassVar

import tvm
import tvm_ffi
from tvm import relax, tirx

from ..graph.expr import is_tensor, shape_of
from ..graph.rewriter import Rewriter


class LiftKernels(Rewriter):
    """Replace calls of recognized TIR functions by operators."""

    ops: ClassVar[frozenset[str] | None] = frozenset({"relax.call_tir"})
    infer_first: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self._mod: tvm.IRModule | None = None

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        self._mod = mod
        return super().__call__(mod)

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        args = list(call.args[1].fields) if isinstance(call.args[1], relax.Tuple) else []
        store = _only_store(self._mod[call.args[0]])  # type: ignore[index]
        if store is None or not args or not all(is_tensor(a) for a in args):
            return None
        lifted = _binary(store, args) if len(args) == 2 else _pad(store, args, old)
        if lifted is None:
            return None
        lifted = self.builder.normalize(lifted)
        return lifted if tvm_ffi.structural_equal(lifted.ty, old.ty) else None


def _only_store(func: tirx.PrimFunc) -> tirx.BufferStore | None:
    """The one assignment of a kernel of one loop nest."""
    stores: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(func.body, [(tirx.BufferStore, stores.append)])
    return stores[0] if len(stores) == 1 else None


def _binary(store: tirx.BufferStore, args: list[relax.Expr]) -> relax.Expr | None:
    """max(a, b) or min(a, b) with right-aligned broadcasting."""
    makers = {tirx.Max: relax.op.maximum, tirx.Min: relax.op.minimum}
    maker = makers.get(type(store.value))
    if maker is None:
        return None
    loads = (store.value.a, store.value.b)
    if not all(isinstance(load, tvm.ir.TensorLoad) for load in loads):
        return None
    if not all(_broadcasts(load, list(store.indices)) for load in loads):
        return None
    shapes = [[int(d) for d in load.source.shape] for load in loads]
    if [list(shape_of(a)) for a in args] != shapes:
        return None
    return maker(*args)


def _broadcasts(load: tvm.ir.TensorLoad, axes: list[tirx.Expr]) -> bool:
    """Whether each index is the output's axis at the same place from the right, or zero."""
    indices = list(load.indices)
    if len(indices) > len(axes):
        return False
    aligned = axes[len(axes) - len(indices) :]
    for index, axis in zip(indices, aligned, strict=True):
        zero = isinstance(index, tirx.IntImm) and int(index) == 0
        if not zero and not index.same_as(axis):
            return False
    return True


def _pad(store: tirx.BufferStore, args: list[relax.Expr], old: relax.Call) -> relax.Expr | None:
    """``if_then_else(inside, x[i - before, ...], constant)``."""
    value = store.value
    if len(args) != 1 or not isinstance(value, tvm.ir.Call):
        return None
    if not isinstance(value.op, tvm.ir.Op) or not value.op.name.endswith("if_then_else"):
        return None
    _, load, fill = value.args
    if not isinstance(load, tvm.ir.TensorLoad) or not isinstance(fill, tirx.FloatImm):
        return None
    source, target = shape_of(args[0]), shape_of(old)
    axes = list(store.indices)
    if not len(source) == len(target) == len(load.indices) == len(axes):
        return None
    widths = []
    for index, axis, before, after in zip(load.indices, axes, source, target, strict=True):
        offset = tvm.sym.Analyzer().simplify(axis - index)
        if not isinstance(offset, tirx.IntImm) or not 0 <= int(offset) <= after - before:
            return None
        widths += [int(offset), after - before - int(offset)]
    return relax.op.nn.pad(args[0], widths, "constant", float(fill.value))
