"""Fuse products of activations with what moves their operands and results.

Channel attention and linear attention slice queries, keys and values out of one tensor, permute
them, multiply, and permute the result back. FuseOps leaves each of these steps a kernel that
copies. Here they become part of the product's loads and of its store.
"""

from __future__ import annotations

import math

import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx

from ..graph.function import bindings_of, main_function, used_vars
from ..tir.batch_matmul import is_product
from .tails import BROADCAST, ELEMENTWISE, FUSABLE, REDUCTION, fuse_as, kernels_of


@tvm.transform.module_pass(opt_level=0, name="FuseMovements")
def fuse_movements(mod: tvm.IRModule, _context: object) -> tvm.IRModule:
    """Fuse the kernels of a module that FuseTIR made."""
    return _behind_products(_before_products(mod)) if _products(mod) else mod


def _before_products(mod: tvm.IRModule) -> tvm.IRModule:
    """Fuse what is read by one product alone."""
    calls, products = _calls(mod), _products(mod)
    readers: dict[relax.Var, list[tvm.ir.GlobalVar | None]] = {}
    for binding in bindings_of(main_function(mod)[1]):
        reader = calls[binding.var].args[0] if binding.var in calls else None
        for used in used_vars(binding.value):
            readers.setdefault(used, []).append(reader)
    apart = {c.args[0] for var, c in calls.items() if not products >= set(readers.get(var, [None]))}
    return _fused(mod, products, apart, False, (BROADCAST, REDUCTION))


def _behind_products(mod: tvm.IRModule) -> tvm.IRModule:
    """Fuse what reads a product alone, and all of it."""
    calls, products = _calls(mod), _products(mod)
    made = {var for var, call in calls.items() if call.args[0] in products}
    apart = {c.args[0] for c in calls.values() if not made >= set(used_vars(c.args[1]))}
    return _fused(mod, products, apart, True, (ELEMENTWISE, FUSABLE))


def _fused(
    mod: tvm.IRModule,
    products: set[tvm.ir.GlobalVar],
    apart: set[tvm.ir.GlobalVar],
    whole: bool,
    patterns: tuple[int, int],
) -> tvm.IRModule:
    """Fuse the movements of one tensor, ``whole`` or in part, with the products beside them; not
    those of functions that some call keeps ``apart``."""
    named = kernels_of(mod)
    movements = [var for var, func in named.items() if var not in apart and _moves(func, whole)]
    if not movements:
        return mod
    movement, product = patterns
    return fuse_as(mod, dict.fromkeys(movements, movement) | dict.fromkeys(products, product))


def _calls(mod: tvm.IRModule) -> dict[relax.Var, relax.Call]:
    """Calls of kernels by what they compute."""
    bound = ((b.var, b.value) for b in bindings_of(main_function(mod)[1]))
    return {
        var: value
        for var, value in bound
        if isinstance(value, relax.Call) and value.op == tvm.ir.Op.get("relax.call_tir")
    }


def _products(mod: tvm.IRModule) -> set[tvm.ir.GlobalVar]:
    """The kernels that are products."""
    return {var for var, func in kernels_of(mod).items() if is_product(func)}


def _moves(func: tirx.PrimFunc, whole: bool) -> bool:
    """Whether a function computes one tensor from elements of one other, each from one of them.
    Padding, which selects zeros by a call, stays a kernel."""
    shapes = [param.shape for param in func.params if hasattr(param.ty, "shape")]
    if len(shapes) != 2 or len(func.params) != 2 or relax.analysis.has_reshape_pattern(func):
        return False  # the last is a view
    if not all(isinstance(extent, tirx.IntImm) for shape in shapes for extent in shape):
        return False
    read, written = (math.prod(map(int, shape)) for shape in shapes)
    if whole and read != written:
        return False
    kinds: list[bool] = []

    def visit(block: s_tir.SBlock) -> None:
        kinds.append(block.init is None)

    def visit_call(_call: tvm.ir.Call) -> None:
        kinds.append(False)

    tvm_ffi.structural_walk(func.body, [(s_tir.SBlock, visit), (tvm.ir.Call, visit_call)])
    return all(kinds)
