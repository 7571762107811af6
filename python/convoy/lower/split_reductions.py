"""Reductions of many elements to few results in two steps: of parts, then of what those give.

One kernel alone cannot keep a GPU busy with them: losses are sums of all elements, gradients of
biases and scales sums over all rows, a network's last pooling has one image at batch size 1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import ClassVar

from tvm import relax
from tvm.relax import op

from ..graph.expr import call_like, dtype_of, ints, op_name, relax_ops, shape_of
from ..graph.function import result_of, used_vars
from ..graph.rewriter import Rewriter
from ..ir.dtypes import FLOAT_DTYPES

#: Elements of a result that the threads of one block reduce in the time of a launch: of rows of
#: channels, of which a block has vectors next to each other, and of other ones.
_LONG_OF_ROWS, _LONG = 2048, 1 << 14
_NARROW = 8  # channels that a block has at least
_BLOCKS = 264  # that keep a GPU busy
_SHORT = 16  # elements of a part at least
_FEWEST_PARTS, _MOST_PARTS = 32, 4096
_FEWEST_EVEN = 8  # parts that are better than those with zeros added

#: Element-wise operators, which stay in the kernel of the reduction.
ELEMENTWISE = relax_ops(
    """
    add subtract multiply divide maximum minimum power astype negative abs square exp log sqrt
    rsqrt sigmoid tanh nn.relu nn.silu
    """
)
#: What zeros are for a sum.
_NEUTRAL = {"relax.sum": 0.0, "relax.mean": 0.0, "relax.max": -math.inf, "relax.min": math.inf}
REDUCE: dict[str, Callable[..., relax.Expr]] = {
    "relax.sum": op.sum, "relax.mean": op.mean, "relax.max": op.max, "relax.min": op.min,
}  # fmt: skip


class SplitReductions(Rewriter):
    """Split sums, means, maxima and minima of floats."""

    ops: ClassVar[frozenset[str] | None] = frozenset(REDUCE)

    def start(self, func: relax.Function) -> None:
        readers = Counter(used_vars(result_of(func)))
        for value in self.values.values():
            readers.update(set(used_vars(value)))
        self._read_once = {var for var, count in readers.items() if count == 1}
        #: Values that one operator reads.
        self._single: set[relax.Expr] = set()

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        name, shape, dtype = op_name(call), shape_of(old.args[0]), dtype_of(old)
        given = range(len(shape)) if call.attrs.axis is None else ints(call.attrs.axis)
        reduced = sorted(axis % len(shape) for axis in given)
        axes = [axis for axis in reduced if shape[axis] != 1]
        if dtype not in FLOAT_DTYPES or not axes or not _is_long(shape, axes):
            return None
        self._single = {new for var, new in self.renamed.items() if var in self._read_once}
        wide = "float32" if name in ("relax.sum", "relax.mean") else dtype
        of_parts, sizes, share = self._of_parts(name, self._cast(call.args[0], wide), axes)
        # Axes that number no parts are left out, or have one element.
        keepdims = bool(call.attrs.keepdims)
        left = [
            axis for axis in range(len(shape)) if keepdims or axis not in reduced or sizes[axis]
        ]
        middle = [max(1, sizes[a]) if a in reduced else shape[a] for a in left]
        parts = [i for i, a in enumerate(left) if a in reduced and sizes[a]]
        result = REDUCE[name](self.reshaped(of_parts, tuple(middle)), parts, keepdims)
        if share != 1:
            result = op.multiply(self.emit(result), relax.const(share, wide))
        return self._cast(self.emit(result), dtype)

    def _of_parts(
        self, name: str, x: relax.Expr, axes: list[int]
    ) -> tuple[relax.Expr, Counter[int], float]:
        """The results of parts, how many there are along each axis, and what the mean of all is
        to be multiplied by where zeros were added."""
        reduce, shape = REDUCE[name], shape_of(x)
        axis = max(axes, key=lambda axis: shape[axis])
        most = max(2, min(_root(shape, axes), shape[axis] // 2))
        parts = max(n for n in range(1, most + 1) if shape[axis] % n == 0)
        has_few = 2 * parts < most  # a size of few or large factors
        kept = _leading(shape, axes, _FEWEST_PARTS)
        if kept := kept or (_leading(shape, axes, _FEWEST_EVEN) if has_few else []):
            of_parts = self.emit(reduce(x, [axis for axis in axes if axis not in kept]))
            return of_parts, Counter({axis: shape[axis] for axis in kept}), 1
        if has_few:
            parts = most
            widths = [0] * (2 * len(shape))
            widths[2 * axis + 1] = -shape[axis] % parts
            x = self.emit(op.nn.pad(x, widths, pad_value=_NEUTRAL[name]))
        size = -(-shape[axis] // parts)
        apart = self._split(x, axis, (parts, size))
        of_parts = self.emit(reduce(apart, [a + (a >= axis) for a in axes]))
        added = parts * size / shape[axis] if name == "relax.mean" else 1
        return of_parts, Counter({axis: parts}), added

    def _split(self, x: relax.Expr, axis: int, sizes: tuple[int, int]) -> relax.Expr:
        """``x`` with an axis of ``sizes``: what it is computed of element by element, and nothing
        else is, is split in its place."""
        shape = shape_of(x)
        made = self.producer(x)
        if made is not None and x in self._single and op_name(made) in ELEMENTWISE:
            split = {arg: self._split_operand(arg, axis - len(shape), sizes) for arg in made.args}
            return self.emit(call_like(made, [split[arg] for arg in made.args]))
        return self.reshaped(x, (*shape[:axis], *sizes, *shape[axis + 1 :]))

    def _split_operand(self, x: relax.Expr, axis: int, sizes: tuple[int, int]) -> relax.Expr:
        """An operand of an element-wise operator; the axis is counted from the last."""
        shape = shape_of(x)
        if -axis > len(shape):
            return x
        if shape[axis] == 1:
            return self.reshaped(x, (*shape[:axis], 1, *shape[axis:]))
        return self._split(x, axis + len(shape), sizes)

    def _cast(self, x: relax.Expr, dtype: str) -> relax.Expr:
        if dtype_of(x) == dtype:
            return x
        cast = self.emit(op.astype(x, dtype))
        self._single.add(cast)
        return cast


def _is_long(shape: tuple[int, ...], axes: list[int]) -> bool:
    """Whether a reduction has more elements for each of its blocks than are worth a launch."""
    results = [size for axis, size in enumerate(shape) if axis not in axes and size > 1]
    last = max(axis for axis, size in enumerate(shape) if size > 1)
    of_rows = last not in axes and shape[last] >= _NARROW
    count = math.prod(shape[axis] for axis in axes)
    blocks = math.prod(results) // (_NARROW if of_rows else 1)
    return blocks < _BLOCKS and count > (_LONG_OF_ROWS if of_rows else _LONG)


def _root(shape: tuple[int, ...], axes: list[int]) -> int:
    """Parts that a reduction is worth: as many as there are elements in each."""
    return min(math.isqrt(math.prod(shape[axis] for axis in axes)), _MOST_PARTS)


def _leading(shape: tuple[int, ...], axes: list[int], fewest: int) -> list[int]:
    """The first of the axes, where they number as many parts as a reduction is worth; none if
    they do not."""
    fits = [
        axes[:kept]
        for kept in range(1, len(axes))
        if fewest <= math.prod(shape[a] for a in axes[:kept]) <= _MOST_PARTS
        and math.prod(shape[a] for a in axes[kept:]) >= _SHORT
    ]
    # A single result has but one block for each part.
    return (fits[-1 if len(axes) == len(shape) else 0]) if fits else []
