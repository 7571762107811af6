"""Linear layers of one tensor that attention reads, or that are read in parts, as one product.

Queries, keys and values are often layers of their own. Attention reads views, so that the parts of
a common result need no copy: one launch instead of three, and the tokens are read once. Nor does a
layer whose result is cut anyway, as scales and shifts are that a condition gives each block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from tvm import relax

from ..graph.expr import (
    as_numpy,
    dtype_of,
    is_const,
    make_const,
    op_name,
    rank_of,
    relax_ops,
    shape_of,
)
from ..graph.rewriter import Rewriter
from .affine import channel_constant
from .attention_reads import feeds_attention, readers_of

#: Elements that a part is a multiple of, so that kernels can load it.
_VECTOR = 8


@dataclass(frozen=True)
class _Layer:
    """A matrix product with constant weights, and the variable of the result with its bias."""

    product: relax.Call
    end: relax.Var
    bias: np.ndarray | None = None

    @property
    def columns(self) -> int:
        return shape_of(self.product)[1]


class PackProducts(Rewriter):
    """Replace layers by slices of one that computes all of them."""

    ops: ClassVar[frozenset[str] | None] = relax_ops("matmul add")

    def start(self, func: relax.Function) -> None:
        self._readers = readers_of(func, self.values)
        together: dict[tuple[relax.Expr, ...], list[_Layer]] = defaultdict(list)
        for var in self.values:
            if (layer := self._layer(var)) is not None:
                data, weights = layer.product.args
                together[data, dtype_of(weights), dtype_of(layer.end)].append(layer)
        #: The layers that are merged, by the variables of their results.
        self._packed = {
            layer.end: layers for layers in together.values() if len(layers) > 1 for layer in layers
        }
        self._parts: dict[relax.Var, relax.Expr] = {}

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        var = self.old.var
        if var not in self._packed:
            return None
        if var not in self._parts:
            self._pack(self._packed[var])
        return self._parts[var]

    def _layer(self, var: relax.Var) -> _Layer | None:
        """The layer that a variable is the product of, if attention alone reads it, or slices."""
        call = self.values[var]
        if op_name(call) != "relax.matmul" or rank_of(call) != 2 or not is_const(call.args[1]):
            return None
        layer, readers = _Layer(call, var), self._readers[var]
        added = self.values.get(readers[0]) if len(readers) == 1 else None
        if added is not None and op_name(added) == "relax.add":
            bias = channel_constant(added.args[1], call)
            layer = _Layer(call, readers[0], bias) if bias is not None else layer
        if layer.columns % _VECTOR:
            return None
        read = feeds_attention(layer.end, self.values, self._readers)
        return layer if read or self._is_cut(layer.end) else None

    def _is_cut(self, var: relax.Var) -> bool:
        """Whether slices alone read a variable, or reshapes that slices alone read."""
        readers = self._readers.get(var) or [None]
        for reader in readers:
            value = None if reader is None else self.values[reader]
            if op_name(value) == "relax.reshape" and self._is_cut(reader):
                continue
            if op_name(value) not in ("relax.strided_slice", "relax.split"):
                return False
        return True

    def _pack(self, layers: Sequence[_Layer]) -> None:
        first = layers[0].product
        weights = np.concatenate([as_numpy(layer.product.args[1]) for layer in layers], 1)
        dtype = dtype_of(first.args[1])
        data = self.rename(first.args[0])
        packed = relax.op.matmul(data, make_const(weights, dtype), first.attrs.out_dtype)
        packed = self.emit(packed)
        if any(layer.bias is not None for layer in layers):
            bias = [np.zeros(()) if layer.bias is None else layer.bias for layer in layers]
            sizes = [layer.columns for layer in layers]
            parts = [np.broadcast_to(b, n) for b, n in zip(bias, sizes, strict=True)]
            packed = self.emit(
                relax.op.add(packed, make_const(np.concatenate(parts), dtype_of(packed)))
            )
        begin = 0
        for layer in layers:
            end = begin + layer.columns
            self._parts[layer.end] = self.emit(relax.op.strided_slice(packed, [1], [begin], [end]))
            begin = end
