"""Names of a model's layers, carried through all passes as the source spans of calls.

An importer or :class:`NameLayers` gives a call the name of its layer, and every
:class:`~convoy.graph.rewriter.Rewriter` passes it on to the replacement of the call.
"""

from __future__ import annotations

from typing import ClassVar

from tvm import relax

from ..graph.expr import layer_of, op_name, relax_ops, with_layer
from ..graph.rewriter import Rewriter
from ..ir.layer import layer_name

_NAMED = relax_ops(
    "nn.conv1d nn.conv2d nn.conv3d nn.conv1d_transpose nn.conv2d_transpose nn.conv3d_transpose"
    " matmul"
)


def named(expr: relax.Expr, layer: str) -> relax.Expr:
    """A convolution or matmul with the name of its layer; other expressions stay."""
    return with_layer(expr, layer) if op_name(expr) in _NAMED else expr


class NameLayers(Rewriter):
    """Name convolutions and matmuls after the parameters that are their weights."""

    ops: ClassVar[frozenset[str] | None] = _NAMED

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        weight = call.args[1]
        while (made := self.producer(weight)) is not None and layer_of(made) == "" and made.args:
            weight = made.args[0]  # behind a transposition or a cast
        if not isinstance(weight, relax.Var) or weight in self.value_of:
            return None
        return with_layer(call, layer_name(weight.name))
