"""Keep what spreads a product over more elements out of the product's kernel.

FuseOps puts ``x * sigmoid(w v)``, the end of a squeeze-and-excitation, into one kernel. Its threads
would either compute the product again for each pixel or leave most of a GPU idle.
"""

from __future__ import annotations

from typing import ClassVar

import tvm
from tvm import relax

from ..graph.expr import shape_of
from ..graph.rewriter import Rewriter

#: Attribute of functions that sum products.
PRODUCT = "convoy.product"
_PATTERN, _BROADCAST, _INJECTIVE = "op_pattern", 1, 2


class KeepSpreadApart(Rewriter):
    """Make functions injective, which FuseOps does not put behind a product, that read the product
    or what is computed of it element by element and write more elements."""

    infer_first: ClassVar[bool] = False
    ops: ClassVar[frozenset[str] | None] = frozenset({"relax.call_tir"})

    def __init__(self) -> None:
        super().__init__()
        self._products: set[relax.Var] = set()

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        self._mod = mod
        named = [f for f in mod.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]
        return super().__call__(mod) if any(_has(f, PRODUCT) for f in named) else mod

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        func, var = self._mod[old.args[0]], self.old.var
        if _has(func, PRODUCT):
            self._products.add(var)
            return None
        pattern = int(func.attrs[_PATTERN]) if _has(func, _PATTERN) else _INJECTIVE
        read = [arg for arg in old.args[1].fields if arg in self._products]
        if not read or pattern > _BROADCAST:
            return None
        if all(shape_of(arg) == shape_of(var) for arg in read):
            self._products.add(var)
            return None
        name = f"{call.args[0].name_hint}_spread"
        apart = self.builder.add_func(func.with_attr(_PATTERN, _INJECTIVE), name)
        return relax.Call(call.op, [apart, *call.args[1:]], call.attrs, call.ty_args, call.span)


def _has(func: tvm.tirx.PrimFunc, key: str) -> bool:
    return bool(func.attrs) and key in func.attrs
