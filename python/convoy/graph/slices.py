"""Tensors that are some channels of wider tensors, and lie in their memory.

Two calls in a dataflow graph tell which tensors share memory; nothing implements or executes them:

    join(parts)     the tensor of all channels of its parts, whose writers write into it
    cut(whole, ..)  some channels of a tensor, which their readers read in it

Channels are the last axis. Both nest: a joined tensor may itself be a part, or be cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import relax

from .expr import dtype_of, op_name, shape_of
from .function import bindings_of

JOIN, _CUT = "convoy.join", "convoy.cut."
#: A copy of a tensor, which becomes a kernel: a part that is not written in place.
COPY = "convoy.copy"


class NotSliceable(Exception):
    """A tensor that cannot lie in a wider one: something reads or writes it as a compact one."""


@dataclass(frozen=True)
class Slice:
    """Channels of ``whole``, a tensor with memory of its own, from ``begin`` on. ``row_stride`` is
    the number of its channels: elements from one row of the slice to the next."""

    whole: relax.Var
    begin: int
    row_stride: int


def join(parts: Sequence[relax.Expr]) -> relax.Call:
    """The tensor that parts of equal shape but for their channels are written into."""
    *rest, _ = shape_of(parts[0])
    channels = sum(shape_of(part)[-1] for part in parts)
    ty = relax.TensorType([*rest, channels], dtype_of(parts[0]))
    return relax.op.call_dps_packed(JOIN, list(parts), out_ty=ty)


def cut(whole: relax.Expr, begin: int, channels: int) -> relax.Call:
    """Some channels of a tensor, as they lie in it."""
    *rest, _ = shape_of(whole)
    ty = relax.TensorType([*rest, channels], dtype_of(whole))
    return relax.op.call_dps_packed(f"{_CUT}{begin}", [whole], out_ty=ty)


def is_layout(symbol: str) -> bool:
    """Return whether an external function is one of these, which is never called."""
    return symbol == JOIN or symbol.startswith(_CUT)


def slices_of(func: relax.Function) -> dict[relax.Var, Slice]:
    """The tensors of a function that lie in others, by every variable that they are bound to;
    before and after its calls got explicit outputs.

    Raises NotSliceable where one of them is reshaped to rows of another length, or is itself a
    reshape of another tensor, or one of several results of a kernel.
    """
    return _Reader(func).slices()


class _Reader:
    def __init__(self, func: relax.Function) -> None:
        self._aliases: dict[relax.Var, relax.Var] = {}
        self._views: dict[relax.Var, relax.Var] = {}
        self._items: set[relax.Var] = set()
        self._inside: dict[relax.Var, tuple[relax.Var, int]] = {}
        for binding in bindings_of(func):
            self._read(binding.var, binding.value)

    def slices(self) -> dict[relax.Var, Slice]:
        found = {var: self._slice(var) for var in self._inside}
        for view, source in self._views.items():
            if (outer := found.get(self._resolved(source))) is not None:
                if shape_of(view)[-1:] != shape_of(source)[-1:]:
                    raise NotSliceable(f"{source.name}, which is reshaped to {shape_of(view)}")
                found[view] = outer
        for alias in self._aliases:
            if (known := found.get(self._resolved(alias))) is not None:
                found[alias] = known
        return found

    def _read(self, var: relax.Var, value: relax.Expr) -> None:
        if isinstance(value, relax.Var):
            self._aliases[var] = value
        elif op_name(value) == "relax.reshape" and isinstance(value.args[0], relax.Var):
            self._views[var] = value.args[0]
        elif isinstance(value, relax.TupleGetItem):
            self._items.add(var)
        elif (call := layout_call(value)) is not None:
            symbol, args = call
            result = var
            if not op_name(value):  # with an explicit output
                *args, result = args
            if symbol == JOIN:
                self._join(args, result)
            else:
                self._place(result, args[0], int(symbol.removeprefix(_CUT)))

    def _join(self, parts: Sequence[relax.Expr], whole: relax.Var) -> None:
        begin = 0
        for part in parts:
            self._place(part, whole, begin)
            begin += shape_of(part)[-1]

    def _place(self, part: relax.Expr, whole: relax.Expr, begin: int) -> None:
        if not isinstance(part, relax.Var) or not isinstance(whole, relax.Var):
            raise NotSliceable("a constant")
        part = self._resolved(part)
        if part in self._inside or part in self._views:
            raise NotSliceable(f"{part.name}, which lies in several tensors or is a reshape")
        if part in self._items:  # another variable is the output of the kernel
            raise NotSliceable(f"{part.name}, which is one of several results")
        self._inside[part] = (whole, begin)

    def _slice(self, var: relax.Var) -> Slice:
        begin = 0
        while (outer := self._inside.get(var)) is not None:
            var, begin = self._resolved(outer[0]), begin + outer[1]
        if var in self._views:
            raise NotSliceable(f"part of {var.name}, which is a reshape")
        return Slice(var, begin, shape_of(var)[-1])

    def _resolved(self, var: relax.Var) -> relax.Var:
        while (source := self._aliases.get(var)) is not None:
            var = source
        return var


def layout_call(value: relax.Expr) -> tuple[str, list[relax.Expr]] | None:
    """Symbol and arguments of a call of :func:`join` or :func:`cut`; None for anything else."""
    if not isinstance(value, relax.Call):
        return None
    if op_name(value) == "relax.call_dps_packed":
        function, args = value.args[0], list(value.args[1].fields)
    else:
        function, args = value.op, list(value.args)
    if not isinstance(function, relax.ExternFunc) or not is_layout(str(function.global_symbol)):
        return None
    return str(function.global_symbol), args


def row_strides(func: relax.Function) -> dict[str, dict[int, int]]:
    """Row strides of the arguments of external functions that are slices, by symbol and place in
    the call, the output last. Each function is called once."""
    slices: Mapping[relax.Var, Slice] = slices_of(func)
    found: dict[str, dict[int, int]] = {}
    for binding in bindings_of(func):
        call = binding.value
        if op_name(call) != "relax.call_dps_packed" or layout_call(call) is not None:
            continue
        operands = [*call.args[1].fields, binding.var]
        strides = {i: slices[o].row_stride for i, o in enumerate(operands) if o in slices}
        if strides:
            found[str(call.args[0].global_symbol)] = strides
    return found


def storage_of(var: relax.Var, slices: Mapping[relax.Var, Slice]) -> tuple[relax.Var, int, int]:
    """The tensor whose memory a tensor lies in, and its first channel and the one behind it."""
    channels = (shape_of(var) or (1,))[-1]
    own = slices.get(var)
    return (var, 0, channels) if own is None else (own.whole, own.begin, own.begin + channels)
