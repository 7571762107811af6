"""Move reshapes of matrix products and convolutions behind the element-wise operators that follow.

Importers apply a linear layer to ``(batch, tokens, channels)``; its product is computed as a
``(batch * tokens, channels)`` GEMM and reshaped. Networks make tokens of the pixels of a
convolution. Bias, activation, scale and residual then work on the reshaped value, where neither a
fused epilogue nor the folding of scales finds them. Behind this pass they work on the product, and
the reshape, which is free, comes last.
"""

from __future__ import annotations

import math
from typing import ClassVar

from tvm import relax

from ..graph.expr import call_like, op_name, rank_of, relax_ops, shape_of
from ..graph.rewriter import Rewriter
from ..ops import DGRAD, DGRAD_3D
from ..ops.activation import ELU, HARDSWISH, MISH
from .norms_of_rows import is_of_last_axis

UNARY = relax_ops(
    """
    nn.relu nn.leakyrelu nn.silu nn.gelu nn.gelu_tanh nn.softplus sigmoid tanh clip erf exp
    negative abs sqrt rsqrt round astype
    """
) | {ELU, HARDSWISH, MISH}
BINARY = relax_ops("add subtract multiply divide maximum minimum")
NORMS = relax_ops("nn.layer_norm nn.rms_norm")


_ROOTS = relax_ops("matmul nn.conv2d nn.conv3d") | {DGRAD, DGRAD_3D}


class MoveReshapes(Rewriter):
    """Apply element-wise operators, and norms of the last axis, before the reshape of a product."""

    ops: ClassVar[frozenset[str] | None] = UNARY | BINARY | NORMS | _ROOTS | {"relax.reshape"}

    def __init__(self) -> None:
        super().__init__()
        #: Products of two matrices, convolutions, and what was computed of them element by
        #: element, numbered in their order.
        self._products: dict[relax.Expr, int] = {}

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        name, shape = op_name(call), shape_of(call)
        if name == "relax.reshape":
            return self.reshaped(call.args[0], shape)
        if name in _ROOTS:
            return self._product(call) if name != "relax.matmul" or len(shape) == 2 else None
        if name in NORMS and not is_of_last_axis(call):
            return None
        operands = call.args if name in BINARY else call.args[:1]
        whole = [arg for arg in operands if shape_of(arg) == shape]
        sources = [source for arg in whole if (source := self._source(arg)) is not None]
        if not sources:
            return None
        product = max(sources, key=self._products.__getitem__)  # the others are its residual
        if shape_of(product) == shape:
            return self._product(call)
        args = [self._beside(arg, product, shape) for arg in operands]
        if None in args:
            return None
        args, axes = [*args, *call.args[len(args) :]], {"axes": [-1]} if name in NORMS else {}
        return relax.op.reshape(self._product(call_like(call, args, **axes)), shape)

    def _product(self, call: relax.Call) -> relax.Expr:
        var = self.emit(call)
        self._products[var] = len(self._products)
        return var

    def _source(self, expr: relax.Expr) -> relax.Expr | None:
        """The product that ``expr`` is, or is a reshape of with the channels as last axis."""
        made = self.producer(expr, "relax.reshape")
        source = made.args[0] if made is not None else expr
        return source if source in self._products and _last(source) == _last(expr) else None

    def _beside(
        self, arg: relax.Expr, product: relax.Expr, shape: tuple[int, ...]
    ) -> relax.Expr | None:
        """An operand in a shape that broadcasts against the product: unchanged if it broadcasts
        along the last axis, reshaped if it has one element for each of the product's."""
        if shape_of(arg) == shape:
            return self.reshaped(arg, shape_of(product))
        *outer, last = shape_of(arg) or (1,)
        if any(d != 1 for d in outer) or last not in (1, shape[-1]):
            whole = math.prod(shape_of(arg)) == math.prod(shape)  # without axes of 1 in front
            return self.reshaped(arg, shape_of(product)) if whole else None
        return arg if rank_of(arg) <= 1 else self.reshaped(arg, (last,))


def _last(expr: relax.Expr) -> tuple[int, ...]:
    return shape_of(expr)[-1:]
