"""A function whose blocks reduce the same rows, as stages: what a thread computes of its rows, one
stage after the other.

All stages have the axes of the first reduction, which number the rows and the elements of each.
Blocks between are part of the expressions that read them, but for functions of rows alone and for
costly functions of elements that several stages read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad
from tvm.tirx import Expr

from .loads import is_select

#: Combines two states of a reduction.
Join = Callable[[Sequence[Expr], Sequence[Expr]], list[Expr]]

_BINARY = (tirx.Add, tirx.Mul, tirx.Max, tirx.Min)
_DATA, _REDUCED = tirx.IterVar.DataPar, tirx.IterVar.CommReduce


class Unfit(s_tir.ScheduleError):
    """A function that is not stages over the same rows."""


@dataclass
class Stage:
    """One value, or a reduction's several, of each row or of each element of it.

    Attributes:
        written: Buffers that the block wrote.
        indices: Where it wrote, by the common axes.
        values: In the common axes; what a reduction joins to its state.
        start: First state of a reduction; None for a stage that is none.
        of_rows: Whether there is one value for each row.
    """

    written: list[tirx.Buffer]
    indices: list[Expr]
    values: list[Expr]
    of_rows: bool
    start: list[Expr] | None = None
    join: Join | None = None


@dataclass
class _Block:
    """A block of a function, with its axes."""

    block: s_tir.SBlock
    stores: list[tirx.BufferStore]
    spatial: list[tirx.IterVar] = field(default_factory=list)
    reduced: list[tirx.IterVar] = field(default_factory=list)

    @property
    def written(self) -> list[tirx.Buffer]:
        return [store.buffer for store in self.stores]


class RowStages:
    """The stages of a function.

    Args:
        keeps: Whether costly functions of elements are stages.

    Attributes:
        rows, columns: The common axes, without those of one element.
        stages: In order; the last one writes the result.

    Raises:
        Unfit: The function is none of stages over the same rows.
    """

    def __init__(self, func: tirx.PrimFunc, keeps: bool = True) -> None:
        blocks = [_read(block) for block in _blocks(func)]
        first = next((block for block in blocks if block.reduced), None)
        if first is None or len(blocks) < 2:
            raise Unfit("nothing is reduced, or nothing else is done")
        self.rows, self.columns = _longer(first.spatial), _longer(first.reduced)
        if not self.columns:
            raise Unfit("rows of one element")
        outputs = {buffer for b in blocks for buffer in b.written} & set(func.params)
        if len(outputs) != 1 or blocks[-1].written != [*outputs]:
            raise Unfit("several results, or one that is read")
        #: Axis of each dimension of what a stage wrote, None for one of one element.
        self._places: dict[tirx.Buffer, list[tirx.Var | None]] = {}
        self._inlined: dict[tirx.Buffer, _Block] = {}
        self._of_rows: set[tirx.Buffer] = set()
        costly = _costly_read_often(blocks) if keeps else set()
        self.stages: list[Stage] = []
        for block in blocks:
            self._take(block, block is blocks[-1], block.written[0] in costly)

    def _take(self, block: _Block, is_last: bool, is_costly: bool) -> None:
        axes = self._bound(block)
        if axes is None:
            if is_last:
                raise Unfit("a result of nothing that was reduced")
            self._inlined[block.written[0]] = block
            return
        columns = {axis.var for axis in self.columns}
        rows = {axis.var for axis in self.rows}
        used = {value for value in axes.values() if isinstance(value, tirx.Var)}
        of_rows = bool(block.reduced) or not used & columns
        if not rows <= used:
            raise Unfit("a block without one of the rows' axes")
        if block.reduced and rows & {axes[axis.var] for axis in _longer(block.reduced)}:
            raise Unfit("a reduction over rows")
        if not of_rows and not columns <= used:
            raise Unfit("a block of a part of the columns")
        for store in block.stores:
            self._places[store.buffer] = [
                axes[i] if isinstance(axes.get(i), tirx.Var) else None for i in store.indices
            ]
            if of_rows:
                self._of_rows.add(store.buffer)
        if not (of_rows or is_last or is_costly):
            self._inlined[block.written[0]] = block
            return
        indices = [self._resolved(i, axes) for i in block.stores[0].indices]
        if not block.reduced:
            values = [self._resolved(store.value, axes) for store in block.stores]
            self.stages.append(Stage(block.written, indices, values, of_rows))
            return
        operands, join = _joined(block)
        values = [self._resolved(value, axes) for value in operands]
        self.stages.append(Stage(block.written, indices, values, True, _start(block.block), join))

    def _bound(self, block: _Block) -> dict[tirx.Var, Expr] | None:
        """The common axis of each axis of a block; None for one that reads nothing of a stage."""
        extents = {axis.var: int(axis.dom.extent) for axis in [*block.spatial, *block.reduced]}
        known = {axis.var: int(axis.dom.extent) for axis in [*self.rows, *self.columns]}
        axes: dict[tirx.Var, Expr] = {
            var: tirx.const(0, var.ty.dtype) for var, size in extents.items() if size == 1
        }
        reads = [load for load in loads_in(block.block.body) if load.source in self._places]
        if not reads and not block.reduced:
            return None
        for load in reads:
            for index, place in zip(load.indices, self._places[load.source], strict=True):
                if place is None or index not in extents or extents[index] != known[place]:
                    continue  # _resolved() refuses what is read elsewhere
                axes.setdefault(index, place)
        taken = {*axes.values()}
        left = [axis for axis in known if axis not in taken]
        rows = {axis.var for axis in self.rows}
        for own, common in (
            (block.spatial, [v for v in left if v in rows or not block.reduced]),
            (block.reduced, [v for v in left if v not in rows]),
        ):
            open_axes = [axis.var for axis in own if axis.var not in axes]
            if not open_axes:
                continue
            if [extents[v] for v in open_axes] != [known[v] for v in common]:
                raise Unfit("a block of other rows or columns")
            axes.update(zip(open_axes, common, strict=True))
        return axes

    def _resolved(self, expr: Expr, axes: dict[tirx.Var, Expr]) -> Expr:
        """An expression in the common axes, of parameters and of what stages keep."""

        def inlined(load: TensorLoad) -> Expr:
            source, indices = load.source, list(load.indices)
            if source in self._of_rows or (source in self._places and source not in self._inlined):
                for index, place in zip(indices, self._places[source], strict=True):
                    if place is not None and not place.same_as(index):
                        raise Unfit("values of other rows are read")
                return load
            if source not in self._inlined:
                return load
            (store,) = self._inlined[source].stores
            of = dict(zip(store.indices, indices, strict=True))
            missing = [a.var for a in self._inlined[source].spatial if a.var not in of]
            of.update({var: tirx.const(0, var.ty.dtype) for var in missing})
            return self._resolved(store.value, of)

        def mapped(var: tirx.Var) -> Expr:
            return axes.get(var, var)

        return tvm_ffi.structural_map(expr, [(TensorLoad, inlined), (tirx.Var, mapped)])


def _blocks(func: tirx.PrimFunc) -> Iterator[s_tir.SBlock]:
    """The blocks below the root of a function, in order."""
    if not isinstance(func.body, s_tir.SBlockRealize):
        raise Unfit("no blocks")
    yield from _below(func.body.block.body)


def _below(stmt: tirx.Stmt) -> Iterator[s_tir.SBlock]:
    if isinstance(stmt, tirx.SeqStmt):
        for part in stmt.seq:
            yield from _below(part)
    elif isinstance(stmt, tirx.For) and stmt.kind == tirx.ForKind.SERIAL:
        yield from _below(stmt.body)
    elif isinstance(stmt, s_tir.SBlockRealize):
        values = stmt.iter_values
        if not all(isinstance(value, (tirx.Var, tirx.IntImm)) for value in values):
            raise Unfit("loops that are no axes")
        if not (isinstance(stmt.predicate, tirx.IntImm) and int(stmt.predicate)):
            raise Unfit("a block under a condition")
        yield stmt.block
    else:
        raise Unfit("statements that are no blocks")


def _read(block: s_tir.SBlock) -> _Block:
    body = block.body
    parts = [*body.seq] if isinstance(body, tirx.SeqStmt) else [body]
    named = {part.var: part.value for part in parts if isinstance(part, tirx.Bind)}
    stores = [part for part in parts if isinstance(part, tirx.BufferStore)]
    if len(named) + len(stores) < len(parts) or block.alloc_buffers or block.match_buffers:
        raise Unfit("a block of more than stores")
    if named:
        stores = [
            tirx.BufferStore(store.buffer, named.get(store.value, store.value), store.indices)
            for store in stores
        ]
    found = _Block(block, stores)
    for axis in block.iter_vars:
        if axis.iter_type not in (_DATA, _REDUCED):
            raise Unfit("axes of another kind")
        if not all(isinstance(n, tirx.IntImm) for n in (axis.dom.min, axis.dom.extent)):
            raise Unfit("sizes that are not known")
        (found.spatial if axis.iter_type == _DATA else found.reduced).append(axis)
    if bool(found.reduced) != (block.init is not None):
        raise Unfit("a reduction without a start")
    axes = {axis.var for axis in found.spatial}
    for store in stores:
        variables = [index for index in store.indices if not _is_zero(index)]
        if any(i not in axes for i in variables) or len({*variables}) < len(variables):
            raise Unfit("a block that does not write in the order of its axes")
    if len(stores) > 1 and not found.reduced:
        raise Unfit("a block of several results")
    return found


def _is_zero(index: Expr) -> bool:
    return isinstance(index, tirx.IntImm) and int(index) == 0


def _longer(axes: list[tirx.IterVar]) -> list[tirx.IterVar]:
    return [axis for axis in axes if int(axis.dom.extent) > 1]


def loads_in(node: object) -> list[TensorLoad]:
    """The loads in an expression or a statement."""
    found: list[TensorLoad] = []
    tvm_ffi.structural_walk(node, [(TensorLoad, found.append)])
    return found


def _costly_read_often(blocks: list[_Block]) -> set[tirx.Buffer]:
    """What is computed by calls of functions and read by several blocks."""
    found = set()
    for block in blocks:
        calls: list[tvm.ir.Call] = []
        tvm_ffi.structural_walk(block.block.body, [(tvm.ir.Call, calls.append)])
        readers = [
            b
            for b in blocks
            if any(
                b.block.body is not block.block.body and load.source in block.written
                for load in loads_in(b.block.body)
            )
        ]
        if len(readers) > 1 and not all(map(is_select, calls)):
            found.add(block.written[0])
    return found


def _start(block: s_tir.SBlock) -> list[Expr]:
    init = block.init
    stores = [*init.seq] if isinstance(init, tirx.SeqStmt) else [init]
    return [store.value for store in stores]


def _joined(block: _Block) -> tuple[list[Expr], Join]:
    """What a reduction joins to its state, and how it joins two states."""
    states, values = block.written, [store.value for store in block.stores]
    operands = [_operand(value, states) for value in values]

    def join(a: Sequence[Expr], b: Sequence[Expr]) -> list[Expr]:
        def replaced(node: Expr) -> Expr:
            if isinstance(node, TensorLoad) and node.source in states:
                return a[states.index(node.source)]
            for operand, other in zip(operands, b, strict=True):
                if tvm_ffi.structural_equal(operand, node):
                    return other
            return node

        kinds = {TensorLoad, *map(type, operands)}
        callbacks = [(kind, replaced) for kind in kinds]
        return [tvm_ffi.structural_map(value, callbacks, order="pre") for value in values]

    states_of = [
        [tirx.Var(f"{side}{i}", str(buffer.dtype)) for i, buffer in enumerate(states)]
        for side in "ab"
    ]
    used: list[tirx.Var] = []
    for value in join(*states_of):
        if loads_in(value):
            raise Unfit("a reduction that joins more than states")
        tvm_ffi.structural_walk(value, [(tirx.Var, used.append)])
    if not {*used} <= {var for side in states_of for var in side}:
        raise Unfit("a reduction that joins more than states")
    return operands, join


def _operand(value: Expr, states: list[tirx.Buffer]) -> Expr:
    """What an expression joins to a state."""

    def is_of_states(expr: Expr) -> bool:
        return any(load.source in states for load in loads_in(expr))

    if isinstance(value, _BINARY):
        parts = [value.a, value.b]
    elif isinstance(value, tirx.Select):
        parts = [value.true_value, value.false_value]
    elif isinstance(value, tvm.ir.Call):
        parts = [arg for arg in value.args if not isinstance(arg, tvm.ir.StringImm)]
    else:
        parts = []
    (operand, *others) = [part for part in parts if not is_of_states(part)] or [None]
    if operand is None or others or len(parts) != 2:
        raise Unfit("a reduction of another kind")
    return operand
