"""Move reshapes of matrix products behind the element-wise operators that follow.

Importers apply a linear layer to ``(batch, tokens, channels)``; its product is computed as a
``(batch * tokens, channels)`` GEMM and reshaped. Bias, activation, scale and residual then work on
the reshaped value, where neither a fused epilogue nor the folding of scales finds them. Behind this
pass they work on the product, and the reshape, which is free, comes last.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tvm import relax

from ..graph.expr import call_like, ints, op_name, rank_of, relax_ops, shape_of
from ..graph.rewriter import Rewriter
from ..ops.activation import ELU, HARDSWISH, MISH

_UNARY = relax_ops(
    """
    nn.relu nn.leakyrelu nn.silu nn.gelu nn.gelu_tanh nn.softplus sigmoid tanh clip erf exp
    negative abs sqrt rsqrt astype
    """
) | {ELU, HARDSWISH, MISH}
_BINARY = relax_ops("add subtract multiply divide maximum minimum")
_NORMS = relax_ops("nn.layer_norm nn.rms_norm")


class MoveReshapes(Rewriter):
    """Apply element-wise operators, and norms of the last axis, before the reshape of a product."""

    ops: ClassVar[frozenset[str] | None] = _UNARY | _BINARY | _NORMS | relax_ops("matmul reshape")

    def __init__(self) -> None:
        super().__init__()
        #: Products of two matrices, and what was computed of them element by element.
        self._products: set[relax.Expr] = set()

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        name = op_name(call)
        if name == "relax.reshape":
            return self.reshaped(call.args[0], shape_of(call))
        if rank_of(call) == 2 and (name == "relax.matmul" or self._products & {*call.args}):
            return self._product(call)
        if name in _BINARY:
            return self._binary(call)
        if name == "relax.matmul" or (name in _NORMS and not _of_last_axis(call)):
            return None
        source = self._source(call.args[0])
        if source is None:
            return None
        axes = {"axes": [-1]} if name in _NORMS else {}  # the last one of fewer
        return self._reshaped(call, [source, *call.args[1:]], **axes)

    def _product(self, call: relax.Call) -> relax.Expr:
        var = self.emit(call)
        self._products.add(var)
        return var

    def _reshaped(self, call: relax.Call, args: list[relax.Expr], **attrs: Any) -> relax.Expr:
        """``call`` on matrices, in its own shape."""
        return relax.op.reshape(self._product(call_like(call, args, **attrs)), shape_of(call))

    def _source(self, expr: relax.Expr) -> relax.Expr | None:
        """The product that ``expr`` is a reshape of, if the channels stay the last axis."""
        made = self.producer(expr, "relax.reshape")
        if made is None or made.args[0] not in self._products:
            return None
        shape = shape_of(expr)
        return made.args[0] if shape and shape[-1] == shape_of(made.args[0])[-1] else None

    def _binary(self, call: relax.Call) -> relax.Expr | None:
        whole = [arg for arg in call.args if shape_of(arg) == shape_of(call)]
        sources = (self._source(arg) for arg in whole)
        product = next((source for source in sources if source is not None), None)
        if product is None:
            return None
        args = [self._beside(arg, product, shape_of(call)) for arg in call.args]
        return None if None in args else self._reshaped(call, args)

    def _beside(
        self, arg: relax.Expr, product: relax.Expr, shape: tuple[int, ...]
    ) -> relax.Expr | None:
        """An operand as it stands beside the product: as it is if it broadcasts along the last
        axis, as a matrix if it has an element for each of the product's."""
        if shape_of(arg) == shape:
            return self.reshaped(arg, shape_of(product))
        *outer, last = shape_of(arg) or (1,)
        if any(d != 1 for d in outer) or last not in (1, shape[-1]):
            return None
        return arg if rank_of(arg) <= 1 else self.reshaped(arg, (last,))


def _of_last_axis(call: relax.Call) -> bool:
    """Whether a norm is taken of each row by itself."""
    return ints(call.attrs.axes) in ((-1,), (rank_of(call) - 1,))
