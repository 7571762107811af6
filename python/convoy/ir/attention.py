"""Fields of an attention workload besides its sizes: scale, mask, and views of its operands."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import InvalidWorkload
from . import fields as checks


@dataclass(frozen=True, order=True)
class RowView:
    """Rows of elements in a compact tensor.

    Row ``r`` of a head starts at element ``offset + outer * strides[0] + batch * strides[1] + head
    * strides[2] + r * strides[3]``; its elements are contiguous. A stride of 0 repeats the same
    elements. The view of an absent tensor has the shape ().
    """

    shape: tuple[int, ...] = ()
    offset: int = 0
    strides: tuple[int, int, int, int] = (0, 0, 0, 0)

    @property
    def size(self) -> int:
        """Elements of the tensor."""
        return math.prod(self.shape) if self.shape else 0

    def last(self, sizes: tuple[int, int, int, int], row: int) -> int:
        """Index of the last element that a view of rows of ``row`` elements reads."""
        steps = zip(sizes, self.strides, strict=True)
        return self.offset + sum((size - 1) * stride for size, stride in steps) + row - 1

    def is_aligned(self, elements: int) -> bool:
        """Return whether all rows start at multiples of this number of elements."""
        return all(number % elements == 0 for number in (self.offset, *self.strides))


@dataclass(frozen=True, order=True)
class Attention:
    """``o = softmax(scale * q k^T + bias) v`` for each head of each batch.

    Attributes:
        q, k, v, o: The operands. Several may be views of tensors that are one and the same.
        bias: Added to the scores, also as a mask with minus infinity; a view of no tensor where
            there is none.
        bias_dtype: Of the bias.
        scale: Of the scores.
        causal: Query ``i`` sees the keys 0 to ``i`` only.
        zeros: A query whose scores are all minus infinity gets zeros; otherwise NaN.
        outer: Batches come in so many groups: ``n`` is ``outer`` times the batches of a group.
    """

    q: RowView
    k: RowView
    v: RowView
    o: RowView
    bias: RowView = RowView()
    bias_dtype: str = "float16"
    scale: float = 1.0
    causal: bool = False
    zeros: bool = False
    outer: int = 1

    @property
    def name(self) -> str:
        """Short name of the differences from plain attention with compact (n, s, h, d) operands."""
        views = "_".join(
            f"{letter}{'x'.join(map(str, view.shape))}o{view.offset}"
            f"s{'x'.join(map(str, view.strides))}"
            for letter, view in (("q", self.q), ("k", self.k), ("v", self.v), ("o", self.o))
        )
        parts = [views, f"scale{self.scale:.9g}"]
        if self.bias.shape:
            b = self.bias
            parts.append(
                f"bias{'x'.join(map(str, b.shape))}o{b.offset}s{'x'.join(map(str, b.strides))}"
                f"-{self.bias_dtype}"
            )
        parts += ["causal"] * self.causal + ["zeros"] * self.zeros
        return ".".join(parts + ([f"outer{self.outer}"] if self.outer > 1 else []))

    def check(
        self, batches: int, heads: int, queries: int, keys: int, dims: tuple[int, int]
    ) -> None:
        """Raise InvalidWorkload if a view leaves its tensor, or o is not written once."""
        if batches % self.outer:
            raise InvalidWorkload(f"outer = {self.outer} of {batches} batches", "a divisor")
        if not math.isfinite(self.scale):
            raise InvalidWorkload(f"scale {self.scale}", "a finite number")
        batch, (dim, value_dim) = batches // self.outer, dims
        for name, view, rows, row in (
            ("q", self.q, queries, dim),
            ("k", self.k, keys, dim),
            ("v", self.v, keys, value_dim),
            ("o", self.o, queries, value_dim),
            ("bias", self.bias, queries, keys),
        ):
            if name == "bias" and not view.shape:
                continue
            sizes = (self.outer, batch, heads, rows)
            if not 0 <= view.last(sizes, row) < view.size:
                raise InvalidWorkload(
                    f"{name} of shape {view.shape} with offset {view.offset} and strides "
                    f"{view.strides}",
                    f"a view of {sizes} rows of {row} elements inside its tensor",
                )
        if self.o.size != batches * heads * queries * value_dim:
            raise InvalidWorkload(
                f"o of shape {self.o.shape}",
                f"{batches * heads * queries * value_dim} elements, all of them written",
            )

    @classmethod
    def from_json(cls, data: object) -> Attention:
        """Inverse of ``dataclasses.asdict``; raises InvalidWorkload naming the field."""
        required = ("q", "k", "v", "o")
        return checks.made(cls, data, _FIELDS, "attention", InvalidWorkload, required)


def _view(name: str) -> checks.Check:
    def check(data: object) -> RowView:
        return checks.made(RowView, data, _VIEW, f"view {name}", InvalidWorkload)

    return check


_INDEX = checks.integer(0, 1 << 48)
_VIEW: Mapping[str, checks.Check] = {
    "shape": checks.tuple_of(checks.integer(1, 1 << 40), most=16),
    "offset": _INDEX,
    "strides": checks.tuple_of(_INDEX, 4),
}
_FIELDS: Mapping[str, checks.Check] = {
    **{name: _view(name) for name in ("q", "k", "v", "o", "bias")},
    "bias_dtype": checks.one_of(("float16", "bfloat16", "float32")),
    "scale": checks.number(-3.4e38, 3.4e38),
    **dict.fromkeys(("causal", "zeros"), checks.boolean),
    "outer": checks.integer(1),
}
