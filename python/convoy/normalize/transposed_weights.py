"""Write attention whose weights are the second operand with weights as the first one.

Networks that keep channels in front of pixels compute ``v p^T`` of values ``v`` of shape (...,
channels, keys) and weights ``p`` of shape (..., queries, keys), as of global contexts, where there
is one query. That is ``(p v^T)^T``: what patterns match as attention, and permutations, which are
views of its operands and result. Weights may also be a softmax over the second to last axis of
scores that are the matmul of keys and queries.
"""

from __future__ import annotations

from typing import ClassVar

from tvm import relax

from ..graph.expr import (
    as_numpy,
    call_like,
    is_const,
    op_name,
    permutation_of,
    rank_of,
    shape_of,
)
from ..graph.rewriter import Rewriter

_MATMUL, _SOFTMAX = "relax.matmul", "relax.nn.softmax"
_PERMUTE, _RESHAPE = "relax.permute_dims", "relax.reshape"


class TransposeWeights(Rewriter):
    """Swap the operands of matmuls by transposed weights that nothing else reads."""

    ops: ClassVar[frozenset[str] | None] = frozenset({_MATMUL})

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        values = call.args[0]
        if is_const(values) or min(rank_of(values), rank_of(call)) < 2:
            return None
        if not self._is_transposed(old.args[1]):
            return None
        weights = self._transposed(call.args[1])
        swapped = call_like(call, [weights, self.emit(_swap(values))])
        return _swap(self.emit(swapped))

    def _alone(self, expr: relax.Expr) -> relax.Expr:
        """The old call that computes a value of at least two axes for one reader; of other values
        these themselves."""
        made = self.single_use(expr)
        return made if made is not None and rank_of(expr) >= 2 else expr

    def _is_transposed(self, expr: relax.Expr) -> bool:
        """Whether an old value is transposed weights."""
        made = self._alone(expr)
        name = op_name(made)
        if name == "relax.astype":
            return self._is_transposed(made.args[0])
        if name in (_PERMUTE, _RESHAPE):
            return _swaps(made) and self._is_weights(made.args[0])
        if name != _SOFTMAX or int(made.attrs.axis) % rank_of(made) != rank_of(made) - 2:
            return False
        return self._is_matmul(made.args[0])

    def _is_weights(self, expr: relax.Expr) -> bool:
        """Whether an old value is a softmax over the last axis."""
        made = self._alone(expr)
        if op_name(made) == "relax.astype":
            return self._is_weights(made.args[0])
        return (
            op_name(made) == _SOFTMAX and int(made.attrs.axis) % rank_of(made) == rank_of(made) - 1
        )

    def _is_matmul(self, expr: relax.Expr) -> bool:
        """Whether an old value is a matmul of two activations times numbers."""
        made = self._alone(expr)
        if op_name(made) in ("relax.multiply", "relax.divide"):
            data, factor = made.args
            return _is_number(factor) and self._is_matmul(data)
        if op_name(made) == "relax.astype":
            return self._is_matmul(made.args[0])
        matmul = op_name(made) == _MATMUL and not any(map(is_const, made.args))
        return matmul and min(map(rank_of, made.args)) >= 2

    def _transposed(self, expr: relax.Expr) -> relax.Expr:
        """A new value with its last two axes swapped; the old one is known to be weights or a
        matmul."""
        made = self.producer(expr)
        assert made is not None, expr
        if op_name(made) in (_PERMUTE, _RESHAPE):
            return made.args[0]
        if op_name(made) == _MATMUL:
            a, b = (self.emit(_swap(arg)) for arg in reversed(made.args))
            return self.emit(call_like(made, [a, b]))
        args = [self._transposed(made.args[0]), *made.args[1:]]
        if op_name(made) == _SOFTMAX:
            return self.emit(call_like(made, args, axis=rank_of(made) - 1))
        return self.emit(call_like(made, args))


def _swap(expr: relax.Expr) -> relax.Expr:
    """The transposes of the matrices of a tensor."""
    last = rank_of(expr) - 1
    return relax.op.permute_dims(expr, [*range(last - 1), last, last - 1])


def _swaps(call: relax.Call) -> bool:
    """Whether a permutation swaps the last two axes, or a reshape does, of which one is 1."""
    last = rank_of(call) - 1
    if op_name(call) == _PERMUTE:
        return permutation_of(call) == (*range(last - 1), last, last - 1)
    *batch, rows, columns = shape_of(call)
    return 1 in (rows, columns) and shape_of(call.args[0]) == (*batch, columns, rows)


def _is_number(expr: relax.Expr) -> bool:
    return is_const(expr) and as_numpy(expr).size == 1 and len(shape_of(expr)) < 2
