"""Pad the heads of attention with zeros to a multiple of 8 elements, the width of the kernels'
loads.

Zeros at the end of queries and keys do not change a score; those of values are cut from the result.
Where heads are columns of a matmul with constant weights, and another such matmul reads the result,
the weights get the zeros, and no kernel pads or slices at run time.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import ClassVar

from tvm import relax

from ..graph.expr import call_like, dtype_of, is_const, op_name, rank_of, relax_ops, shape_of
from ..graph.rewriter import Rewriter
from ..ir.dtypes import HALF_DTYPES
from .attention_reads import Readers, leads_only_to, readers_of
from .weight_padding import PASSED, Groups, WeightPadding, padded_const

#: Heads are padded to a multiple of this, up to the longest head that kernels support.
_VECTOR, _MOST = 8, 128
_SOFTMAX = "relax.nn.softmax"
#: Operators that may be between the two matmuls of an attention.
_BETWEEN = relax_ops("astype reshape broadcast_to where add subtract multiply divide nn.softmax")


class PadHeads(Rewriter):
    """Pad the operands of both matmuls in 16 bit; in float32 there is no attention kernel."""

    ops: ClassVar[frozenset[str] | None] = relax_ops("matmul")

    def start(self, func: relax.Function) -> None:
        self._func = func
        self._weights = WeightPadding(self, self._is_of_heads)
        self._of_scores: set[relax.Var] = set()
        self._of_values: set[relax.Var] = set()
        for var, call in self.values.items():
            if op_name(call) != "relax.matmul" or dtype_of(call) not in HALF_DTYPES:
                continue
            scores = _scores(self.values, call.args[0], False, {})
            if scores is not None and rank_of(call) > 2:
                self._of_scores.add(scores)
                self._of_values.add(var)

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        a, b = call.args
        if self.old.var in self._of_scores and _missing(shape_of(a)[-1]):
            return call_like(call, [self._padded(a, -1), self._padded(b, -2)])
        if self.old.var in self._of_values and _missing(shape_of(b)[-1]):
            return self._of_padded_values(call)
        groups = self._weights.sliced_groups(a, rank_of(a) - 1)
        if groups is None or not is_const(b) or rank_of(b) != 2:
            return None
        data = self._weights.padded(a, groups)
        if data is None:
            return None
        return call_like(call, [data, padded_const(b, replace(groups, axis=0))])

    def _of_padded_values(self, call: relax.Call) -> relax.Expr:
        a, b = call.args
        result = self.emit(call_like(call, [a, self._padded(b, -1)]))
        axis, size = rank_of(result) - 1, shape_of(b)[-1]
        sliced = self.emit(relax.op.strided_slice(result, [axis], [0], [size]))
        self._weights.add_slice(sliced, Groups(axis, 1, size, shape_of(result)[-1]), result)
        return sliced

    def _padded(self, x: relax.Expr, axis: int) -> relax.Expr:
        axis, size = axis % rank_of(x), shape_of(x)[axis]
        padded = self._weights.padded(x, Groups(axis, 1, size, size + _missing(size)))
        if padded is not None:
            return padded
        width = [0] * (2 * rank_of(x))
        width[2 * axis + 1] = _missing(size)
        return self.emit(relax.op.nn.pad(x, width))

    @functools.cached_property
    def _readers(self) -> Readers:
        return readers_of(self._func, self.values)

    def _is_of_heads(self, matmul: relax.Expr) -> bool:
        """Whether only attention reads a matmul, so that it is not computed twice."""
        found = (old for old, new in self.renamed.items() if new.same_as(matmul))
        return all(
            leads_only_to(
                old,
                self._readers,
                lambda reader: op_name(self.values[reader]) in PASSED,
                (self._of_scores | self._of_values).__contains__,
            )
            for old in found
        )


def _missing(size: int) -> int:
    return -size % _VECTOR if size <= _MOST else 0


def _scores(
    values: dict[relax.Var, relax.Expr],
    expr: relax.Expr,
    behind_softmax: bool,
    seen: dict[tuple[relax.Expr, bool], relax.Var | None],
) -> relax.Var | None:
    """The matmul whose softmax an expression is; ``seen`` are the answers so far."""
    key = expr, behind_softmax
    if key not in seen:
        seen[key] = _search(values, expr, behind_softmax, seen)
    return seen[key]


def _search(
    values: dict[relax.Var, relax.Expr],
    expr: relax.Expr,
    behind_softmax: bool,
    seen: dict[tuple[relax.Expr, bool], relax.Var | None],
) -> relax.Var | None:
    call = values.get(expr, expr) if isinstance(expr, relax.Var) else expr
    name = op_name(call)
    if name == "relax.matmul":
        batched = behind_softmax and all(rank_of(arg) > 2 for arg in call.args)
        return expr if batched else None
    if name not in _BETWEEN:
        return None
    behind = behind_softmax or name == _SOFTMAX
    found = (_scores(values, a, behind, seen) for a in call.args)
    return next((scores for scores in found if scores is not None), None)
