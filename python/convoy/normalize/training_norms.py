"""Batch norms of a training step, forward and backward, taken apart into statistics and
elementwise parts (see ``ops/batch_norm.py``), on the channels-last graph.

Forward and backward share the statistics. The gradient of an activation behind a norm is taken into
that of the norm when nobody else reads it. A moving variance that is corrected behind the norm, as
PyTorch's is, is moved by the statistics. The gradient of a bias in front of a norm is zero: batch
statistics take the bias away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tvm import relax

from ..graph.expr import as_numpy, attr_fields, dtype_of, ints, is_const, op_name, rank_of, shape_of
from ..graph.function import bindings_of
from ..graph.rewriter import Rewriter
from ..ir.dtypes import FLOAT_DTYPES
from ..ops.activation_backward import ACTIVATION_BACKWARD
from ..ops.batch_norm import (
    AFFINE,
    BACKWARD,
    batch_norm_stats,
    channel_affine,
    expand_backward,
)
from ..ops.elementwise import RELU_BACKWARD

_STATS, _NORM = 6, "relax.nn.batch_norm"

#: Its name in ``activation_backward`` and its parameters.
Activation = tuple[str, Sequence[float]]


class ExpandTrainingNorms(Rewriter):
    """Split batch norms of a training step into statistics and elementwise parts."""

    ops: ClassVar[frozenset[str] | None] = frozenset({_NORM, BACKWARD})

    def __init__(self) -> None:
        super().__init__()
        self._stats: dict[tuple[relax.Expr, float, bool], list[relax.Expr]] = {}
        #: Factors of the variances of norms, and the moving variances that have them.
        self._factors: dict[relax.Var, float] = {}
        self._corrected: dict[relax.Var, relax.Var] = {}
        self._moved: dict[relax.Var, relax.Expr] = {}
        self._gradients: set[relax.Expr] = set()  # by data of training norms

    def start(self, func: relax.Function) -> None:
        for binding in bindings_of(func):
            found = self._correction(binding.value)
            if found is not None:
                norm, self._factors[norm] = found
                self._corrected[binding.var] = norm

    def takes(self, value: relax.Expr) -> bool:
        if super().takes(value) or self.old is None:
            return super().takes(value)
        return op_name(value) == "relax.sum" or self.old.var in self._corrected

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        if op_name(call) == "relax.sum":
            return self._sum(call)
        if self.old.var in self._corrected:
            return self._moved.get(self._corrected[self.old.var])
        attrs = attr_fields(call.attrs)
        data = call.args[1 if op_name(call) == BACKWARD else 0]
        if int(attrs["axis"]) % rank_of(data) != rank_of(data) - 1:
            return None
        if dtype_of(data) not in FLOAT_DTYPES:
            return None
        if op_name(call) == BACKWARD:
            return self._backward(call)
        return self._forward(call) if bool(attrs["training"]) else None

    def _correction(self, value: relax.Expr) -> tuple[relax.Var, float] | None:
        """The norm and k of ``k * new variance + (1 - momentum) * (1 - k) * variance``."""
        if op_name(value) != "relax.add" or dtype_of(value) != "float32":
            return None
        scaled, kept = (self._scaled(arg) for arg in value.args)
        if scaled is None or kept is None:
            return None
        item = self.values.get(scaled[0])
        if not isinstance(item, relax.TupleGetItem) or item.index != 2 or self.uses[scaled[0]] > 1:
            return None
        norm = self.values.get(item.tuple_value)
        if norm is None or op_name(norm) != _NORM or not kept[0].same_as(norm.args[4]):
            return None
        rest = (1 - float(norm.attrs.momentum)) * (1 - scaled[1])
        return (item.tuple_value, scaled[1]) if abs(kept[1] - rest) < 1e-6 else None

    def _scaled(self, value: relax.Expr) -> tuple[relax.Expr, float] | None:
        """x and k of ``x * k`` for one number k."""
        call = self.single_use(value)
        if call is None or op_name(call) != "relax.multiply" or not is_const(call.args[1]):
            return None
        factor = as_numpy(call.args[1])
        return (call.args[0], float(factor)) if factor.ndim == 0 else None

    def _sum(self, call: relax.Call) -> relax.Expr | None:
        """Zeros for the sum of a training norm's input gradient over all rows."""
        data, axes = call.args[0], call.attrs.axis
        if data not in self._gradients:
            return None
        over = (
            set(range(rank_of(data))) if axes is None else {a % rank_of(data) for a in ints(axes)}
        )
        if not over >= set(range(rank_of(data) - 1)):
            return None
        return relax.op.zeros(shape_of(call), dtype_of(call))

    def _forward(self, call: relax.Call) -> relax.Expr:
        x, *vectors = call.args
        attrs = call.attrs
        stats = self._emit_stats(
            x, [self._wide(v) for v in vectors], float(attrs.epsilon), float(attrs.momentum),
            bool(attrs.scale), bool(attrs.center), True, self._factors.get(self.old.var, 1.0),
        )  # fmt: skip
        self._moved[self.old.var] = stats[5]
        y = self.emit(channel_affine(x, stats[0], stats[1]))
        moved = [self._like(new, old) for new, old in zip(stats[4:], vectors[2:], strict=True)]
        return relax.Tuple([y, *moved])

    def _backward(self, call: relax.Call) -> relax.Expr:
        attrs, (dy, x, gamma, mean, var) = attr_fields(call.attrs), call.args
        epsilon, training = float(attrs["epsilon"]), bool(attrs["training"])
        wide = [self._wide(v) for v in (gamma, mean, var)]
        stats = self._stats.get((x, epsilon, training))
        activation: Activation = ("", ())
        if stats is None:  # the forward norm is elsewhere; its shift is not needed
            vectors = [wide[0], wide[0], *wide[1:]]
            stats = self._emit_stats(
                x, vectors, epsilon, 0.0, bool(attrs["scale"]), False, training
            )
        else:
            dy, activation = self._before_activation(dy, x, stats)
        inner = relax.Call(call.op, [dy, x, *wide], call.attrs)
        dx, *vectors = expand_backward(self.builder, inner, stats, activation)
        if training:
            self._gradients.add(dx)
        return relax.Tuple([dx, *(self._like(v, gamma) for v in vectors)])

    def _emit_stats(
        self, x: relax.Expr, vectors: list[relax.Expr], epsilon: float, momentum: float,
        scale: bool, center: bool, training: bool, unbiased: float = 1.0,
    ) -> list[relax.Expr]:  # fmt: skip
        gamma, beta, mean, var = vectors
        both = self.emit(
            batch_norm_stats(
                x, gamma, beta, mean, var, epsilon, momentum, scale, center, training, unbiased
            )
        )
        items = [self.emit(relax.TupleGetItem(both, i)) for i in range(_STATS)]
        self._stats[x, epsilon, training] = items
        return items

    def _before_activation(
        self, dy: relax.Expr, x: relax.Expr, stats: list[relax.Expr]
    ) -> tuple[relax.Expr, Activation]:
        """The gradient of ``activation(norm(x))`` where ``dy`` is what this norm alone gets of it,
        with the activation; else ``dy``."""
        kept: tuple[relax.Expr, Activation] = (dy, ("", ()))
        if self.uses[self.old.value.args[0]] != 1:
            return kept
        if (mask := self.producer(dy, RELU_BACKWARD)) is not None:
            relu = self.producer(mask.args[1], "relax.nn.relu")
            inner, activation = None if relu is None else relu.args[0], ("relu", ())
        elif (mask := self.producer(dy, ACTIVATION_BACKWARD)) is not None:
            fields = attr_fields(mask.attrs)
            inner, activation = mask.args[1], (fields["activation"], fields["parameters"])
        else:
            return kept
        norm = None if inner is None else self.producer(inner, AFFINE)
        if norm is None or not norm.args[0].same_as(x) or not norm.args[1].same_as(stats[0]):
            return kept
        return mask.args[0], activation

    def _wide(self, vector: relax.Expr) -> relax.Expr:
        if dtype_of(vector) == "float32":
            return vector
        return self.emit(relax.op.astype(vector, "float32"))

    def _like(self, vector: relax.Expr, declared: relax.Expr) -> relax.Expr:
        dtype = dtype_of(declared)
        return vector if dtype == "float32" else self.emit(relax.op.astype(vector, dtype))
