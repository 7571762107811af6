"""Reductions that TVM's importer converts wrongly or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from tvm import relax
from tvm.relax import op

from ..graph.expr import dtype_of

Converter = Callable[[Any, Any], relax.Expr]


def _extreme(reduce: Callable[..., relax.Expr]) -> Converter:
    """``amax`` or ``amin``: (input, axes, keepdim); no axes are all."""

    def convert(node: Any, importer: Any) -> relax.Expr:
        x, *rest = importer.retrieve_args(node)
        given = dict(zip(("dim", "keepdim"), rest, strict=False)) | node.kwargs
        axes = given.get("dim") or None
        axes = [axes] if isinstance(axes, int) else axes
        emit = importer.block_builder.emit
        return emit(reduce(x, axis=axes, keepdims=bool(given.get("keepdim", False))))

    return convert


def _product(node: Any, importer: Any) -> relax.Expr:
    """(input, axis, keepdim), in the dtype of the result: int64 for integers."""
    x, axis, *rest = importer.retrieve_args(node)
    keepdim = bool(rest[0]) if rest else bool(node.kwargs.get("keepdim", False))
    dtype = importer._convert_data_type(node.meta["val"].dtype)
    if dtype_of(x) != dtype:
        x = importer.block_builder.emit(op.astype(x, dtype))
    return importer.block_builder.emit(op.prod(x, axis=[axis], keepdims=keepdim))


def _vector_norm(node: Any, importer: Any) -> relax.Expr:
    """(input, order, axes, keepdim); of order 2 without the powers of TVM's importer, and of order
    0 the number of elements that are not zero."""
    x, *rest = importer.retrieve_args(node)
    order, axes, keepdim = [*rest, *(2, None, False)[len(rest) :]][:3]
    emit, dtype = importer.block_builder.emit, str(x.ty.dtype)
    if order == 0:
        counted = emit(op.astype(op.not_equal(x, relax.const(0, dtype)), dtype))
        return emit(op.sum(counted, axes, keepdims=bool(keepdim)))
    if order != 2:
        return cast(relax.Expr, importer._norm(node))
    squares = emit(op.power(x, relax.const(2.0, dtype)))
    return emit(op.sqrt(emit(op.sum(squares, axes, keepdims=bool(keepdim)))))


CONVERTERS: dict[str, Converter] = {
    "amax.default": _extreme(op.max),
    "amin.default": _extreme(op.min),
    "linalg_vector_norm.default": _vector_norm,
    "prod.dim_int": _product,
}
