"""Shapes as values, einsum and the rest."""

from __future__ import annotations

from convoy.relay.infer.rules import Inputs, broadcast_dim, rule
from convoy.relay.types import Dim, TensorType, Type


@rule("shape_of")
def shape_of(call: Inputs) -> Type:
    call.count(1)
    return TensorType((len(call.tensor(0).shape),), call.attrs["dtype"] or "int32")


@rule("ndarray_size")
def ndarray_size(call: Inputs) -> Type:
    call.count(1)
    call.tensor(0)
    return TensorType((), call.attrs["dtype"] or "int32")


@rule("einsum")
def einsum(call: Inputs) -> Type:
    """`ij,jk->ik`; without an arrow the letters that stand once, in alphabetical order."""
    call.count(1)
    fields = call.tensors(0)
    equation = call.attrs["equation"].replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if "." in equation:
        raise call.error(f"equation '{equation}'", "letters without an ellipsis")
    if len(terms) != len(fields) or not all(t.isalpha() or not t for t in terms):
        raise call.error(f"equation '{equation}' of {len(fields)} tensors", "one term a tensor")
    sizes: dict[str, Dim] = {}
    for term, field in zip(terms, fields, strict=False):
        if len(term) != len(field.shape):
            raise call.error(f"'{term}' for {field}", "one letter a dimension")
        for letter, size in zip(term, field.shape, strict=False):
            joined = broadcast_dim(sizes.get(letter, size), size)
            if joined is None:
                raise call.error(f"sizes {sizes[letter]} and {size} of '{letter}'", "one size")
            sizes[letter] = joined
    out = right if arrow else "".join(sorted(c for c in sizes if left.count(c) == 1))
    if not set(out) <= set(sizes):
        raise call.error(f"equation '{equation}'", "letters that stand on the left")
    return TensorType([sizes[c] for c in out], fields[0].dtype)
