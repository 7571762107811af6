"""Fallback schedules: slow, with next to no requirements."""

from __future__ import annotations

import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir import dlight
from tvm.s_tir.dlight.base import ScheduleRule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.target import Target

from .aliasing import chooses_from_results

_THREADS = 256
_LAUNCHES = ("thread_extent", "virtual_thread")


class Fallback(dlight.gpu.Fallback):
    """TVM's last rule, which sums in device memory; declines sums that CUDA miscompiles there."""

    def apply(self, func: tirx.PrimFunc, target: Target, tunable: bool) -> s_tir.Schedule | None:
        sch = super().apply(func, target, tunable)
        if sch is not None and chooses_from_results(sch.mod["main"].body):
            raise s_tir.ScheduleError("it reads a result where CUDA's compiler would reorder loads")
        return sch


class ThreadPerElement(ScheduleRule):
    """Every block a kernel of its own, a thread for each element of its outer axes; sums stay in
    registers until they are complete.

    Nothing is inlined, so that values between blocks pass through device memory. For functions
    whose blocks have loops of their own; a block with threads of its own stays as it is.
    """

    def apply(self, func: tirx.PrimFunc, target: Target, tunable: bool) -> s_tir.Schedule:
        sch = s_tir.Schedule(func)
        blocks = sch.get_child_blocks(sch.get_sblock(_root(func).name_hint))
        if not blocks:
            raise s_tir.ScheduleError("no loops around a block")
        for block in blocks:
            if has_threads(sch.get(block)):
                continue
            axes = _outer_axes(sch, func, block) or [sch.add_unit_loop(block)]
            stmt, threads = sch.get(block), _THREADS
            sums = range(len(stmt.writes) if stmt.init is not None else 0)
            stores = [sch.cache_write(block, i, "local") for i in sums]
            element = sch.fuse(*axes) if len(axes) > 1 else axes[0]
            if stores:  # they would lose the guard of threads too many
                size = int(sch.get(element).extent)
                threads = next(n for n in range(min(size, _THREADS), 0, -1) if size % n == 0)
            outer, thread = sch.split(element, factors=[None, threads])
            sch.bind(outer, "blockIdx.x")
            sch.bind(thread, "threadIdx.x")
            for store in stores:
                sch.reverse_compute_at(store, thread)
        return sch


def _root(func: tirx.PrimFunc) -> s_tir.SBlock:
    if not isinstance(func.body, s_tir.SBlockRealize):
        raise s_tir.ScheduleError("a function that does not consist of blocks")
    return func.body.block


def _outer_axes(sch: s_tir.Schedule, func: tirx.PrimFunc, block: SBlockRV) -> list[LoopRV]:
    """Return the outermost loops of a block that run over one parallel axis each: no two iterations
    of them write the same element."""
    realize = _realize_of(func, sch.get(block).name_hint)
    parallel = {
        value
        for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
        if axis.iter_type == tirx.IterVar.DataPar and isinstance(value, tirx.Var)
    }
    found = []
    for loop in sch.get_loops(block):
        stmt = sch.get(loop)
        if stmt.loop_var not in parallel or stmt.kind == tirx.ForKind.THREAD_BINDING:
            break
        found.append(loop)
    return found


def _realize_of(func: tirx.PrimFunc, name: str) -> s_tir.SBlockRealize:
    found: list[s_tir.SBlockRealize] = []

    def visit(node: s_tir.SBlockRealize) -> None:
        if node.block.name_hint == name:
            found.append(node)

    tvm_ffi.structural_walk(func.body, [(s_tir.SBlockRealize, visit)])
    if len(found) != 1:
        raise s_tir.ScheduleError(f"{len(found)} blocks with the name {name}")
    return found[0]


def one_thread(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Every outermost statement a kernel of one thread, its loops run one iteration after the
    other; statements with threads of their own stay as they are.

    This is no schedule but a change of the loop kinds, so that there is nothing in a function that
    it cannot take.
    """
    body = func.body
    if not isinstance(body, s_tir.SBlockRealize):
        return func.with_body(_bound(body))
    root = body.block
    statements = root.body.seq if isinstance(root.body, tirx.SeqStmt) else [root.body]
    bound = [_bound(statement) for statement in statements]
    block = s_tir.SBlock(
        root.iter_vars, root.reads, root.writes, root.name_hint,
        tirx.SeqStmt(bound) if len(bound) > 1 else bound[0], root.init, root.alloc_buffers,
        root.match_buffers, root.annotations,
    )  # fmt: skip
    return func.with_body(s_tir.SBlockRealize(body.iter_values, body.predicate, block))


def _bound(body: tirx.Stmt) -> tirx.Stmt:
    if has_threads(body):
        return body

    def serial(node: tirx.For) -> tirx.For:
        if node.kind == tirx.ForKind.SERIAL:
            return node
        return tirx.For(node.loop_var, node.min, node.extent, tirx.ForKind.SERIAL, node.body)

    body = tvm_ffi.structural_map(body, [(tirx.For, serial)])
    for tag in ("threadIdx.x", "blockIdx.x"):
        variable = tirx.Var(tag.replace(".", "_"), "int32")
        axis = tirx.IterVar(None, variable, tirx.IterVar.ThreadIndex, tag)
        body = tirx.For(variable, 0, 1, tirx.ForKind.THREAD_BINDING, body, axis)
    return body


def without_elements(func: tirx.PrimFunc) -> bool:
    """Return whether there is nothing to compute: every output has a dimension of zero."""
    written: list[tirx.Buffer] = []

    def visit(block: s_tir.SBlock) -> None:
        written.extend(region.source for region in block.writes)

    tvm_ffi.structural_walk(func.body, [(s_tir.SBlock, visit)])
    return bool(written) and all(
        any(isinstance(d, tirx.IntImm) and int(d) == 0 for d in buffer.shape) for buffer in written
    )


def nothing(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Make a function of the same arguments that does nothing."""
    return func.with_body(tirx.Evaluate(0))


def works_on_the_host(stmt: tirx.Stmt) -> bool:
    """Return whether a statement touches tensors outside of any thread. TVM compiles that, and the
    program then reads device memory from the CPU."""
    if isinstance(stmt, tirx.For):
        return stmt.kind != tirx.ForKind.THREAD_BINDING and works_on_the_host(stmt.body)
    if isinstance(stmt, tirx.AttrStmt):
        return stmt.attr_key not in _LAUNCHES and works_on_the_host(stmt.body)
    if isinstance(stmt, s_tir.SBlockRealize):
        return works_on_the_host(stmt.block.body)
    if isinstance(stmt, tirx.SeqStmt):
        return any(works_on_the_host(part) for part in stmt.seq)
    if isinstance(stmt, tirx.IfThenElse):
        cases = [stmt.then_case, *([stmt.else_case] if stmt.else_case is not None else [])]
        return any(works_on_the_host(case) for case in cases)
    if isinstance(stmt, tirx.Evaluate):
        return not isinstance(stmt.value, tirx.IntImm)
    body = getattr(stmt, "body", None)
    return works_on_the_host(body) if body is not None else isinstance(stmt, tirx.BufferStore)


def has_threads(body: tirx.Stmt) -> bool:
    """Return whether a statement launches threads itself."""
    found: list[bool] = []

    def loop(node: tirx.For) -> None:
        found.append(node.kind == tirx.ForKind.THREAD_BINDING)

    def attribute(node: tirx.AttrStmt) -> None:
        found.append(node.attr_key in _LAUNCHES)

    tvm_ffi.structural_walk(body, [(tirx.For, loop), (tirx.AttrStmt, attribute)])
    return any(found)
