"""Fold scales and shifts of data into the weights of the products that read it.

Pre-norm networks have a batch norm before linear layers and 1x1 convolutions, after a sum or a
concatenation, where there are no preceding weights. ``w (s x + t)`` is ``(w s) x + w t``. The
second term is computed with the rounded weights, so that a mean that was subtracted still cancels.
A shift alone is folded too, unless the kernel of a product before it adds it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import ClassVar

import numpy as np
from tvm import relax

from ..graph.expr import (
    as_numpy,
    call_like,
    dtype_of,
    ints,
    is_const,
    make_const,
    op_name,
    rank_of,
    shape_of,
)
from ..graph.function import result_of, used_vars
from ..ir.dtypes import numpy_dtype
from .affine import PRODUCTS, ThenFoldAffine, channel_constant, is_product
from .layout import DATA, KERNEL
from .precision import compute_dtype

#: Data, and the scale and shift of its channels.
_Affine = tuple[relax.Expr, np.ndarray, np.ndarray]


class FoldData(ThenFoldAffine):
    """Fold if all readers of the data are such products, and merge the shifts into the following
    additions."""

    ops: ClassVar[frozenset[str] | None] = PRODUCTS

    def __init__(self, policy: str) -> None:
        super().__init__()
        self._rounded = numpy_dtype(compute_dtype(policy))

    def start(self, func: relax.Function) -> None:
        self._readers: dict[relax.Var, list[relax.Expr]] = defaultdict(list)
        for value in [*self.values.values(), result_of(func)]:
            for var in used_vars(value):
                self._readers[var].append(value)

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        found = self._affine(old.args[0])
        if found is None or not all(
            _takes(reader, old.args[0], found[2]) for reader in self._readers[old.args[0]]
        ):
            return None
        self.changed = True
        data = self.reshaped(self.rename(found[0]), shape_of(old.args[0]))
        scale, shift = found[1:]
        weights = as_numpy(old.args[1]).astype(np.float64)
        scale, shift = (_along_inputs(part, old) for part in (scale, shift))
        scaled = (weights * scale).astype(self._rounded).astype(np.float64)
        safe = np.where(scale == 0, 1, scale)
        added = np.where(scale == 0, weights * shift, scaled * (shift / safe))
        axes = tuple(range(1, weights.ndim)) if op_name(old) != "relax.matmul" else 0
        constant = make_const(scaled, dtype_of(old.args[1]))
        product = self.emit(call_like(call, [data, constant]))
        total = added.sum(axes)
        if not total.any():
            return product
        return relax.op.add(product, make_const(total, dtype_of(product)))

    def _affine(self, var: relax.Expr) -> _Affine | None:
        """The data that a value is a scaled and possibly shifted copy of, with scale and shift."""
        view = self._made(var, "relax.reshape")
        if view is not None and _last(view) == _last(view.args[0]) and self.uses[view.args[0]] == 1:
            var = view.args[0]
        added = self._made(var, "relax.add")
        shift: np.ndarray | None = np.zeros(())
        source = var
        if added is not None:
            source, shift = added.args[0], channel_constant(added.args[1], added.args[0])
        if shift is None:
            return None
        scaled = self._made(source, "relax.multiply")
        if scaled is None or (added is not None and self.uses[source] != 1):
            alone = added is not None and not is_product(source, self.values.get)
            return (source, np.ones(()), shift) if alone else None
        scale = channel_constant(scaled.args[1], scaled.args[0])
        return None if scale is None else (scaled.args[0], scale, shift)

    def _made(self, var: relax.Expr, name: str) -> relax.Call | None:
        value = self.values.get(var)
        return value if op_name(value) == name else None


def _takes(reader: relax.Expr, data: relax.Expr, shift: np.ndarray) -> bool:
    """Whether a product has constant weights for the data; with a shift, none for its padding."""
    if op_name(reader) not in PRODUCTS or not reader.args[0].same_as(data):
        return False
    if not is_const(reader.args[1]):
        return False
    attrs, rank = reader.attrs, rank_of(reader)
    if op_name(reader) == "relax.matmul":
        return rank_of(reader.args[1]) == 2
    layouts = str(attrs.data_layout), str(attrs.kernel_layout)
    return layouts == (DATA[rank], KERNEL[rank]) and not (shift.any() and any(ints(attrs.padding)))


def _along_inputs(values: np.ndarray, product: relax.Call) -> np.ndarray:
    """Values of the data's channels in a shape that broadcasts against the weights."""
    values = np.broadcast_to(values, _last(product.args[0]))
    if op_name(product) == "relax.matmul":
        return values[:, None]
    outputs, *window, inputs = shape_of(product.args[1])
    groups = int(product.attrs.groups)
    beside = np.repeat(values.reshape(groups, inputs), outputs // groups, axis=0)
    return beside.reshape(outputs, *(1,) * len(window), inputs)


def _last(expr: relax.Expr) -> tuple[int, ...]:
    return shape_of(expr)[-1:]
