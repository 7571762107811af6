"""Read a value from the interior of its padded form, so that only that is written.

Generators pad by reflection before a convolution and add the value itself behind it. The value and
its padded form would be two kernels, as each is read by another one; the latter holds the former.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from tvm import relax

from ..graph.expr import as_numpy, ints, is_const, op_name, rank_of, shape_of
from ..graph.function import result_of, used_vars
from ..graph.rewriter import Rewriter
from .split_reductions import ELEMENTWISE

_TAKE, _PAD = "relax.take", "relax.nn.pad"


class ReadInteriors(Rewriter):
    """Slice what element-wise operators read of an element-wise result out of its padded form."""

    infer_first: ClassVar[bool] = False

    def start(self, func: relax.Function) -> None:
        self._readers: dict[relax.Var, list[relax.Var]] = {}
        for var, value in self.values.items():
            for used in set(used_vars(value)):
                self._readers.setdefault(used, []).append(var)
        self._returned = set(used_vars(result_of(func)))
        #: The padded forms of values, with where the values begin in them.
        self._padded: dict[relax.Var, tuple[relax.Var, list[int]]] = {}
        for var, value in self.values.items():
            if op_name(value) in ELEMENTWISE and (form := self._form(var)) is not None:
                self._padded[var] = form

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        if op_name(old) not in ELEMENTWISE:
            return None
        args = [self._read(arg, before) for arg, before in zip(call.args, old.args, strict=True)]
        return relax.Call(call.op, args, call.attrs, call.ty_args, call.span)

    def _read(self, arg: relax.Expr, old: relax.Expr) -> relax.Expr:
        if not isinstance(old, relax.Var) or old not in self._padded:
            return arg
        padded, begin = self._padded[old]
        end = [first + size for first, size in zip(begin, shape_of(old), strict=True)]
        axes = list(range(len(begin)))
        return self.emit(relax.op.strided_slice(self.renamed[padded], axes, begin, end))

    def _form(self, var: relax.Var) -> tuple[relax.Var, list[int]] | None:
        """The one padded form of a value that is there before all others read the value; None
        where others than element-wise operators do."""
        readers = self._readers.get(var, [])
        pads = [reader for reader in readers if op_name(self.values[reader]) in (_TAKE, _PAD)]
        if len(pads) != 1 or len(readers) < 2 or var in self._returned:
            return None
        begin, last = [0] * rank_of(var), var
        reader: relax.Var | None = pads[0]
        while reader is not None and (first := _interior(self.values[reader])) is not None:
            begin = [a + b for a, b in zip(begin, first, strict=True)]
            last, behind = reader, self._readers.get(reader, [])
            reader = behind[0] if len(behind) == 1 and reader not in self._returned else None
        order = {bound: place for place, bound in enumerate(self.values)}
        others = [other for other in readers if other is not pads[0]]
        late = all(order[other] > order[last] for other in others)
        plain = all(op_name(self.values[other]) in ELEMENTWISE for other in others)
        return (last, begin) if late and plain and not last.same_as(var) else None


def _interior(call: relax.Call) -> list[int] | None:
    """Where the operand of a padding begins in its result; None where it is no padding."""
    if op_name(call) == _PAD:
        widths = ints(call.attrs.pad_width)
        return list(widths[::2]) if min(widths) >= 0 else None
    if op_name(call) != _TAKE or call.attrs.axis is None or not is_const(call.args[1]):
        return None
    size, places = shape_of(call.args[0]), as_numpy(call.args[1])
    axis = int(call.attrs.axis) % len(size)
    if places.ndim != 1 or len(places) < size[axis]:
        return None
    whole = np.arange(size[axis])
    starts = range(len(places) - len(whole) + 1)
    first = next((i for i in starts if (places[i : i + len(whole)] == whole).all()), None)
    return None if first is None else [first * (i == axis) for i in range(len(size))]
