"""Reductions of one element, as functions of it.

TVM's schedules inline what reads a reduction into it where that has no loop, and so apply it to
the initial value and, once more, to what it gave: a sigmoid of the mean of one pixel was wrong.
The normal form removes those that are operators; these come from operators that lower to several.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad


@tvm.tirx.transform.prim_func_pass(opt_level=0, name="WithoutUnitReductions")
def without_unit_reductions(
    func: tirx.PrimFunc, _mod: tvm.IRModule, _context: object
) -> tirx.PrimFunc:
    """Write blocks whose reduced axes have one element each without an initial value."""
    return func.with_body(tvm_ffi.structural_map(func.body, [(s_tir.SBlock, _written_out)]))


def _written_out(block: s_tir.SBlock) -> s_tir.SBlock:
    init, body = block.init, block.body
    if not isinstance(init, tirx.BufferStore) or not isinstance(body, tirx.BufferStore):
        return block
    reduced = [a for a in block.iter_vars if a.iter_type == tirx.IterVar.CommReduce]
    if not all(isinstance(a.dom.extent, tirx.IntImm) and int(a.dom.extent) == 1 for a in reduced):
        return block

    def load(node: TensorLoad) -> tirx.Expr:
        return init.value if node.source.same_as(body.buffer) else node

    value = tvm_ffi.structural_map(body.value, [(TensorLoad, load)])
    axes = [tirx.IterVar(a.dom, a.var, tirx.IterVar.DataPar) for a in block.iter_vars]
    return s_tir.SBlock(
        axes, block.reads, block.writes, block.name_hint,
        tirx.BufferStore(body.buffer, value, body.indices), None, block.alloc_buffers,
        block.match_buffers, block.annotations,
    )  # fmt: skip
