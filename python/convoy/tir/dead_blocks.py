"""Remove blocks whose results nothing reads.

TVM computes ``x * 0`` as 0 while it fuses kernels, so that what computes ``x`` has no reader any
more, as the branches of a feature pyramid with a weight of zero. Rules that look for the results of
a reduction would give each thread all elements of a kernel that does not depend on it.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import s_tir, tirx


@tvm.tirx.transform.prim_func_pass(opt_level=0, name="WithoutDeadBlocks")
def without_dead_blocks(func: tirx.PrimFunc, _mod: tvm.IRModule, _context: object) -> tirx.PrimFunc:
    """Keep the statements below the root block that write what the function returns, or what
    another one that is kept reads."""
    realize = func.body
    if not isinstance(realize, s_tir.SBlockRealize):
        return func
    root = realize.block
    if not isinstance(root.body, tirx.SeqStmt) or not root.alloc_buffers or root.match_buffers:
        return func
    own = set(root.alloc_buffers)
    used: set[tirx.Buffer] = set()
    kept: list[tvm.ir.Stmt] = []
    for statement in reversed(list(root.body.seq)):
        touched = _touched(statement)
        if touched is None:
            return func
        read, written = touched
        if written and written <= own - used:
            continue
        kept.insert(0, statement)
        used |= read | written
    if len(kept) == len(root.body.seq) or not kept:
        return func
    block = s_tir.SBlock(
        root.iter_vars, root.reads, root.writes, root.name_hint,
        kept[0] if len(kept) == 1 else tirx.SeqStmt(kept), root.init,
        [buffer for buffer in root.alloc_buffers if buffer in used], root.match_buffers,
        root.annotations,
    )  # fmt: skip
    return func.with_body(s_tir.SBlockRealize(realize.iter_values, realize.predicate, block))


def _touched(statement: tvm.ir.Stmt) -> tuple[set[tirx.Buffer], set[tirx.Buffer]] | None:
    """Buffers that a statement reads, and those that it writes; None if it has blocks that do not
    say, such as those of TVM's own code."""
    blocks: list[s_tir.SBlock] = []
    loads: list[tvm.ir.TensorLoad] = []
    stores: list[tirx.BufferStore] = []
    others: list[tvm.ir.Stmt] = []
    tvm_ffi.structural_walk(
        statement,
        [
            (s_tir.SBlock, blocks.append),
            (tvm.ir.TensorLoad, loads.append),
            (tirx.BufferStore, stores.append),
            (tirx.Evaluate, others.append),
            (tirx.DeclBuffer, others.append),
        ],
    )
    if others or not blocks or any(b.match_buffers or b.alloc_buffers for b in blocks):
        return None
    read = {region.source for block in blocks for region in block.reads}
    written = {region.source for block in blocks for region in block.writes}
    read |= {load.source for load in loads}
    return read, written | {store.buffer for store in stores}
