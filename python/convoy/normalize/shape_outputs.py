"""Return outputs that are shapes or sizes as constant int64 tensors.

An importer converts ONNX's Shape to a value of Relax's shape type, which is valid inside a network
but cannot be returned by a compiled module.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from ..errors import UnsupportedOp


def shape_outputs(mod: tvm.IRModule) -> tvm.IRModule:
    """Replace static shapes and sizes among the outputs of ``main`` by constants.

    Raises:
        UnsupportedOp: Another output that is no tensor.
    """
    main = mod["main"]
    if _is_tensors(main.ret_ty):
        return mod
    body = main.body
    bindings = {b.var: b.value for block in body.blocks for b in block.bindings}
    value = _tensors(body.body, bindings)
    out = relax.Var("tensors", value.ty)
    *blocks, last = body.blocks or [relax.DataflowBlock([])]
    # In the last block, whose variables may not be seen behind it.
    last = type(last)([*last.bindings, relax.VarBinding(out, value)])
    seq = relax.SeqExpr([*blocks, last], out)
    new = relax.Function(main.params, seq, value.ty, main.is_pure, main.attrs)
    functions = {**mod.functions, mod.get_global_var("main"): new}
    mod = tvm.IRModule(functions, attrs=mod.attrs)
    return relax.transform.DeadCodeElimination()(relax.transform.Normalize()(mod))


def _is_tensors(ty: tvm.ir.Type) -> bool:
    if isinstance(ty, relax.TupleType):
        return all(map(_is_tensors, ty.fields))
    return isinstance(ty, relax.TensorType)


def _tensors(expr: relax.Expr, bindings: dict[relax.Var, relax.Expr]) -> relax.Expr:
    if _is_tensors(expr.ty):
        return expr
    while expr in bindings:
        expr = bindings[expr]
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([_tensors(field, bindings) for field in expr.fields])
    sizes = list(expr.values) if isinstance(expr, relax.ShapeExpr) else [expr]
    sizes = [getattr(size, "value", None) for size in sizes]
    if not all(isinstance(size, int) for size in sizes):
        raise UnsupportedOp(f"an output of type {expr.ty}", "tensors of static shapes")
    shape = np.array(sizes, "int64")
    return relax.const(shape if isinstance(expr, relax.ShapeExpr) else shape.reshape(()), "int64")
