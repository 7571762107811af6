"""Merge convolutions of one tensor whose results are added into one convolution.

RepVGG, MobileOne, FastViT and RepViT are trained with several branches: filters of different sizes,
and the identity, each with a batch norm. With batch norms folded, a sum of branches is linear: a
smaller filter is a larger one with zeros elsewhere, and the identity is a filter with one tap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from tvm import relax

from ..graph.expr import (
    as_numpy,
    attr_fields,
    call_like,
    dtype_of,
    ints,
    is_const,
    make_const,
    op_name,
    padding_of,
    rank_of,
    relax_ops,
    shape_of,
)
from ..ir.dtypes import FLOAT_DTYPES
from .affine import ThenFoldAffine, channel_constant
from .layout import DATA, KERNEL

_CONVS = relax_ops("nn.conv2d nn.conv3d")
_SUMS = relax_ops("add subtract")


@dataclass(frozen=True)
class _Term:
    """``factor``, a number or one for each channel, times a value or (of None) one."""

    factor: np.ndarray
    value: relax.Expr | None = None


@dataclass(frozen=True)
class _Filter:
    """A convolution with constant weights of float64 in the order of :data:`KERNEL`."""

    call: relax.Call
    weights: np.ndarray

    @property
    def axes(self) -> int:
        return self.weights.ndim - 2

    @property
    def padding(self) -> tuple[int, ...]:
        return padding_of(self.call.attrs.padding, self.axes)[: self.axes]

    @property
    def moves_pixels(self) -> bool:
        """Whether a result is of other pixels than the data, because of a stride."""
        return set(ints(self.call.attrs.strides)) != {1}

    def with_added(self, weights: np.ndarray, padding: Sequence[int]) -> _Filter | None:
        """With a filter of other taps added; None if some of those are not among its own."""
        window = []
        steps = ints(self.call.attrs.dilation)
        spatial = range(1, 1 + self.axes)
        for axis, step, own, other in zip(spatial, steps, self.padding, padding, strict=True):
            first, rest = divmod(own - other, step)
            last = first + weights.shape[axis]
            if rest or first < 0 or last > self.weights.shape[axis]:
                return None
            window.append(slice(first, last))
        total = self.weights.copy()
        total[(slice(None), *window)] += weights
        return _Filter(self.call, total)


class MergeBranches(ThenFoldAffine):
    """Merge the branches of sums into the largest filter among them, and fold the following
    operators."""

    ops: ClassVar[frozenset[str] | None] = _SUMS

    def start(self, func: relax.Function) -> None:
        sums = [call for call in self.values.values() if op_name(call) in _SUMS]
        #: Sums that are terms of a larger sum, with which they are merged.
        self._inner = {
            arg
            for call in sums
            for arg in call.args
            if self.uses[arg] == 1 and shape_of(arg) == shape_of(call)
        }

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        if self.old.var in self._inner or dtype_of(old) not in FLOAT_DTYPES:
            return None
        terms = self._terms(old)
        filters = {i: f for i, term in enumerate(terms) if (f := self._filter(term)) is not None}
        merged: dict[int, _Filter] = {}
        left = dict(enumerate(terms))
        for place in sorted(filters, key=lambda i: -filters[i].weights.size):
            others = [n for n in left if place in left and n != place and n not in merged]
            residuals = [n for n in others if n not in filters and _alike(terms[n], terms[place])]
            for other in sorted(others, key=residuals.__contains__):
                if place not in merged and other in residuals:
                    continue
                base = merged.get(place, filters[place])
                if (found := _joined(base, terms[other], filters.get(other))) is not None:
                    merged[place] = found
                    del left[other]
        if not merged:
            return None
        self.changed = True
        return self._sum([self._value(left[n], merged.get(n)) for n in left], old)

    def _terms(self, root: relax.Call) -> list[_Term]:
        """The terms of a sum, through nested sums and factors without other readers."""
        terms: list[_Term] = []
        waiting: list[tuple[relax.Expr, np.ndarray]] = [(root, np.ones(()))]
        while waiting:
            expr, factor = waiting.pop()
            call = self.values.get(expr, expr) if self.uses[expr] == 1 else expr
            if (constant := channel_constant(expr, root)) is not None:
                terms.append(_Term(factor * constant))
            elif op_name(call) in _SUMS and shape_of(call) == shape_of(root):
                sign = 1 if op_name(call) == "relax.add" else -1
                waiting += [(call.args[1], sign * factor), (call.args[0], factor)]
            elif (scaled := _scaled(call, root)) is not None:
                waiting.append((scaled[0], factor * scaled[1]))
            else:
                terms.append(_Term(factor, expr))
        return _added_up(terms)

    def _filter(self, term: _Term) -> _Filter | None:
        """The convolution that computes a term, if it has no other reader."""
        call = self.values.get(term.value) if isinstance(term.value, relax.Var) else None
        if call is None or op_name(call) not in _CONVS or self.uses[term.value] != 1:
            return None
        attrs, rank = call.attrs, rank_of(call)
        layouts = (str(attrs.data_layout), str(attrs.out_layout or attrs.data_layout))
        if set(layouts) != {DATA[rank]} or str(attrs.kernel_layout) != KERNEL[rank]:
            return None
        if not is_const(call.args[1]):
            return None
        outputs = (*term.factor.shape, *(1,) * (rank - 1)) if term.factor.ndim else ()
        weights = as_numpy(call.args[1]).astype(np.float64) * term.factor.reshape(outputs)
        return _Filter(call, weights)

    def _value(self, term: _Term, merged: _Filter | None) -> tuple[int, relax.Expr]:
        """A term with its sign."""
        if merged is not None:
            weights = make_const(merged.weights, dtype_of(merged.call.args[1]))
            return 1, self.emit(call_like(merged.call, [self.rename(merged.call.args[0]), weights]))
        sign = -1 if (term.factor < 0).all() else 1
        factor = sign * term.factor
        if term.value is None:
            return sign, make_const(factor.astype(np.float32))
        value = self.rename(term.value)
        if (factor == 1).all():
            return sign, value
        constant = make_const(factor, dtype_of(value))
        return sign, self.emit(relax.op.multiply(value, constant))

    def _sum(self, parts: Sequence[tuple[int, relax.Expr]], old: relax.Call) -> relax.Expr:
        """The sum, starting with a term of the result's shape."""
        ordered = sorted(parts, key=lambda part: (is_const(part[1]), part[0] < 0))
        total = ordered[0][1]
        for sign, value in ordered[1:]:
            if is_const(value):
                value = make_const(as_numpy(value), dtype_of(old))
            function = relax.op.add if sign > 0 else relax.op.subtract
            total = self.emit(function(total, value))
        return total


def _added_up(terms: Sequence[_Term]) -> list[_Term]:
    """Terms with those of the same value added up, without what is zero then: branches that cancel
    each other."""
    factors: dict[relax.Expr | None, np.ndarray] = {}
    for term in terms:
        factors[term.value] = factors.get(term.value, np.zeros(())) + term.factor
    return [_Term(factor, value) for value, factor in factors.items() if factor.any()]


def _alike(term: _Term, other: _Term) -> bool:
    """Whether two values have the same factor: a residual, which a convolution adds at no cost,
    becomes part of its filter only where others do."""
    return term.value is not None and bool(np.all(term.factor == other.factor))


def _scaled(call: relax.Expr, root: relax.Call) -> tuple[relax.Expr, np.ndarray] | None:
    """(x, factors) of a product of all channels with constants."""
    if op_name(call) != "relax.multiply" or shape_of(call) != shape_of(root):
        return None
    for x, other in (call.args, reversed(call.args)):
        factors = channel_constant(other, x)
        if factors is not None and shape_of(x) == shape_of(root):
            return x, factors
    return None


def _joined(base: _Filter, term: _Term, other: _Filter | None) -> _Filter | None:
    """``base`` with a term of the same data added; None if the term cannot be merged."""
    call, data = base.call, base.call.args[0]
    if other is not None and other.call.args[0].same_as(data):
        own, its = (attr_fields(c.attrs) for c in (call, other.call))
        taps = set(other.weights.shape[1:-1])
        same = [n for n in own if n != "padding" and (n != "dilation" or taps != {1})]
        if any(str(own[n]) != str(its[n]) for n in same):
            return None
        return base.with_added(other.weights, other.padding)
    if term.value is None or not term.value.same_as(data) or base.moves_pixels:
        return None
    if shape_of(data) != shape_of(call):
        return None
    channels, own = base.weights.shape[0], base.weights.shape[-1]
    identity = np.zeros((channels, *(1,) * base.axes, own))
    places = np.arange(channels)
    identity.reshape(channels, own)[places, places % own] = term.factor
    return base.with_added(identity, (0,) * base.axes)
