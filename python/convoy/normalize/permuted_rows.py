"""Move permutations of rows behind linear layers, where they end.

A linear layer computes each row on its own. torchvision's vision transformer puts tokens before
images ahead of each projection and back behind it: behind the layers the first permutation is a
view that attention reads, and the second one undoes that of the attention's result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from tvm import relax

from ..graph.expr import (
    call_like,
    is_const,
    op_name,
    permutation_of,
    rank_of,
    shape_of,
)
from ..graph.rewriter import Rewriter
from .attention_reads import Readers, feeds_attention, readers_of
from .norms_of_rows import is_of_last_axis
from .reshapes import BINARY, NORMS, UNARY

_MATMUL, _PERMUTE, _RESHAPE = "relax.matmul", "relax.permute_dims", "relax.reshape"


@dataclass(frozen=True)
class _Rows:
    """The rows of a matrix that is a permutation of ``source``: of the order of its axes, those
    that make rows and those that make columns."""

    source: relax.Expr
    rows: tuple[int, ...]
    columns: tuple[int, ...]

    @property
    def blocks(self) -> tuple[int, ...]:
        """The extents of the rows' axes in the order of the source."""
        return tuple(shape_of(self.source)[axis] for axis in sorted(self.rows))

    @property
    def axes(self) -> tuple[int, ...]:
        """The order of the blocks in the matrix."""
        return tuple(sorted(self.rows).index(axis) for axis in self.rows)

    @property
    def places(self) -> np.ndarray:
        """The place of each row in the order of the source."""
        return np.arange(math.prod(self.blocks)).reshape(self.blocks).transpose(self.axes)

    @property
    def swaps(self) -> bool:
        """Whether two blocks change places, so that rows stay evenly spaced in each."""
        places = self.places.reshape(-1)
        if places.size < 2 or not 1 < (step := int(places[1])) < places.size:
            return False
        swapped = np.arange(places.size).reshape(-1, step).T.reshape(-1)
        return bool(np.array_equal(places, swapped))

    def are_undone(self, call: relax.Call) -> bool:
        """Whether a permutation of the matrix, in any shape, has the order of the source."""
        *lead, last = permutation_of(call)
        if last != len(lead):
            return False
        places = self.places.reshape(shape_of(call.args[0])[:-1]).transpose(lead).reshape(-1)
        return bool(np.array_equal(places, np.arange(places.size)))


class MovePermutations(Rewriter):
    """Compute linear layers, and what works on each of their rows, in the order of the source."""

    ops: ClassVar[frozenset[str] | None] = UNARY | BINARY | NORMS | {_MATMUL, _PERMUTE, _RESHAPE}

    def start(self, func: relax.Function) -> None:
        self._readers: Readers = readers_of(func, self.values)
        #: The values that are computed in the order of the source, and the permutations undone.
        self._moved: dict[relax.Var, _Rows] = {}
        self._undone: set[relax.Var] = set()
        #: The matrices of the moved values, in the order of the source.
        self._matrices: dict[relax.Var, relax.Expr] = {}
        for var, call in self.values.items():
            if var in self._moved or not _is_linear(call):
                continue
            rows = self._rows(call.args[0])
            if rows is None or list(rows.axes) == sorted(rows.axes):
                continue
            moved, undone = [var], set()
            if self._ends(rows, moved, undone):
                self._moved.update(dict.fromkeys(moved, rows))
                self._undone |= undone

    def _rows(self, expr: relax.Expr) -> _Rows | None:
        call, columns = self.values.get(expr), shape_of(expr)[-1]
        while op_name(call) == _RESHAPE:
            call = self.values.get(call.args[0])
        if op_name(call) != _PERMUTE:
            return None
        axes, shape = permutation_of(call), shape_of(call)
        cut = next((k for k in range(len(axes)) if math.prod(shape[k:]) == columns), None)
        return None if not cut else _Rows(call.args[0], axes[:cut], axes[cut:])

    def _ends(self, rows: _Rows, moved: list[relax.Var], undone: set[relax.Var]) -> bool:
        """Whether all that is computed of the first of ``moved`` becomes free of the permutation;
        collects what is to be moved, and the permutations that are undone."""
        for var in moved:
            for reader in self._readers.get(var) or [None]:
                call = None if reader is None else self.values[reader]
                if op_name(call) == _PERMUTE and rows.are_undone(call):
                    undone.add(reader)
                elif self._is_of_rows(call, var):
                    moved += [] if reader in moved else [reader]
                elif not rows.swaps or not feeds_attention(var, self.values, self._readers):
                    return False
        return True

    def _is_of_rows(self, call: relax.Expr | None, var: relax.Var) -> bool:
        """Whether an operator works on each row of its operand."""
        name = op_name(call)
        if name == _RESHAPE:
            return shape_of(call)[-1:] == shape_of(var)[-1:]
        if name == _MATMUL:
            return _is_linear(call) and bool(call.args[0].same_as(var))
        if name in NORMS:
            return is_of_last_axis(call)
        if name not in UNARY | BINARY or shape_of(call) != shape_of(var):
            return False
        return all(arg.same_as(var) or _is_of_columns(arg) for arg in call.args)

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        var = self.old.var
        if var in self._undone:
            return self.reshaped(self._matrices[old.args[0]], shape_of(old))
        if var not in self._moved:
            return None
        rows = self._moved[var]
        if op_name(call) == _RESHAPE:
            matrix = self._matrices[old.args[0]]
        else:
            args = [self._operand(*pair, rows) for pair in zip(call.args, old.args, strict=True)]
            axes = {"axes": [-1]} if op_name(call) in NORMS else {}
            matrix = self.emit(call_like(call, args, **axes))
        self._matrices[var] = matrix
        apart = self.reshaped(matrix, (*rows.blocks, shape_of(matrix)[-1]))
        return self.reshaped(
            self.emit(relax.op.permute_dims(apart, [*rows.axes, len(rows.axes)])), shape_of(old)
        )

    def _operand(self, arg: relax.Expr, old: relax.Expr, rows: _Rows) -> relax.Expr:
        """An operand in the order of the source."""
        if old in self._matrices and self._moved[old] is rows:
            return self._matrices[old]
        if is_const(old):
            return arg if rank_of(arg) < 3 else self.reshaped(arg, shape_of(arg)[-1:])
        source = self.rename(rows.source)
        ordered = self.emit(relax.op.permute_dims(source, [*sorted(rows.rows), *rows.columns]))
        return self.reshaped(ordered, shape_of(old))


def _is_linear(call: relax.Expr) -> bool:
    if op_name(call) != _MATMUL:
        return False
    data, weights = call.args
    return rank_of(data) == 2 == rank_of(weights) and is_const(weights)


def _is_of_columns(arg: relax.Expr) -> bool:
    """Whether an operand is the same for all rows."""
    return is_const(arg) and math.prod(shape_of(arg)[:-1]) == 1
