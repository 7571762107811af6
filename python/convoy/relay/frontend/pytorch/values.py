"""Values beside tensors and Python's own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from convoy.errors import UnsupportedOp
from convoy.relay.ast import Expr
from convoy.relay.frontend.common import (
    infer_shape,
    rank,
    reshape,
    swap,
    transpose,
    unsqueeze,
)
from convoy.relay.frontend.pytorch.indexing import written
from convoy.relay.frontend.pytorch.registry import Call


@dataclass(frozen=True)
class Quantized:
    """A quantized tensor: real = scale * (expr - zero_point).

    Attributes:
        expr: The integers.
        scale: The scale, a constant.
        zero_point: The zero point, a constant of int32.
        axis: The axis of scales by channel, None for one scale.
    """

    expr: Expr
    scale: Expr
    zero_point: Expr
    axis: int | None = None

    def dequantized(self) -> Expr:
        """Return the real numbers."""
        from convoy.relay.qnn import op as qnn

        axis = -1 if self.axis is None else self.axis
        return qnn.dequantize(self.expr, self.scale, self.zero_point, axis=axis)


@dataclass(frozen=True)
class Opaque:
    """An object of the model: a module, or the packed weights of a quantized layer.

    Attributes:
        object: The object.
        path: Its name in the model.
    """

    object: Any
    path: str = ""


Write = Callable[[Expr, Expr], Expr]


@dataclass(frozen=True)
class View:
    """A value that shares memory with another one.

    Attributes:
        base: The key of the other.
        forward: Makes the value of the other.
        write: Makes the other, of itself and of a new value of the view.
    """

    base: Any
    forward: Callable[[Expr], Expr]
    write: Write


@dataclass(frozen=True)
class State:
    """The values of a graph at some point.

    Attributes:
        values: The values by key.
        views: The values that share memory with others.
        same: Other names of values.
        written: The keys that were written in place.
    """

    values: dict[Any, Any]
    views: dict[Any, View]
    same: dict[Any, Any]
    written: Collection[Any]


@dataclass(frozen=True)
class Held:
    """A value that leaves a block.

    Attributes:
        key: The key of the value outside of the block that it is, None for one of the block.
        value: The value.
    """

    key: Any
    value: Any


class Values:
    """The values of a graph by key, with what an in-place operator does to those that share memory.

    Keys are names in TorchScript, and nodes in FX.
    """

    def __init__(self) -> None:
        self._values: dict[Any, Any] = {}
        self._views: dict[Any, View] = {}
        self._same: dict[Any, Any] = {}
        self._written: set[Any] = set()
        self._protected: set[Any] = set()

    def state(self) -> State:
        """Return what the values are now."""
        return State(dict(self._values), dict(self._views), dict(self._same), set(self._written))

    def restore(self, state: State, written: Collection[Any]) -> None:
        """Go back to an earlier state, with other keys that were written in place."""
        self._values, self._views = dict(state.values), dict(state.views)
        self._same, self._written = dict(state.same), set(written)

    def overwrite(self, values: Mapping[Any, Any]) -> None:
        """Replace values that were written in place, with all that share memory with them."""
        self._values.update(values)

    def key(self, key: Any) -> Any:
        """Return the key of the value that a key is another name of."""
        while key in self._same:
            key = self._same[key]
        return key

    def __getitem__(self, key: Any) -> Any:
        return self._values[self.key(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._same.pop(key, None)
        self._views.pop(key, None)
        self._protected.discard(key)
        self._values[key] = value

    def __contains__(self, key: Any) -> bool:
        return self.key(key) in self._values

    def view(self, key: Any, view: View) -> None:
        """Note that a value shares memory with another."""
        self._views[key] = view

    def alias(self, key: Any, other: Any) -> None:
        """Make a key another name of a value."""
        if self.key(other) != key:
            self._same[key] = self.key(other)

    def held(self, key: Any, local: Collection[Any]) -> Held:
        """Return a value that leaves a block.

        Args:
            key: Its key.
            local: The keys of the block, which another run of it sets anew.
        """
        root = self.key(key)
        return Held(None if root in local else root, self._values[root])

    def hold(self, key: Any, held: Held) -> None:
        """Set a value that left a block; a key outside of it gets another name."""
        self[key] = held.value
        if held.key is not None:
            self.alias(key, held.key)

    def protect(self, key: Any) -> None:
        """Refuse writes to a value that shares memory with another one on one branch only."""
        self._protected.add(key)

    def update(self, key: Any, value: Any) -> None:
        """Write a value in place, and all that shares memory with it.

        Raises:
            UnsupportedOp: It depends on values what shares memory with it.
        """
        key = self.key(key)
        self._write(key, value)
        while key in self._views:
            view = self._views[key]
            base = self.key(view.base)
            self._write(base, view.write(self._values[base], self._values[key]))
            key = base
        self._refresh(key)

    def _write(self, key: Any, value: Any) -> None:
        if key in self._protected:
            raise UnsupportedOp(
                "an in-place operator on a tensor that another one is on one branch of an if only",
                "an operator that is not in place",
            )
        self._values[key] = value
        self._written.add(key)

    def _refresh(self, key: Any) -> None:
        for other, view in list(self._views.items()):
            if self.key(view.base) == key and other != key:
                self._write(other, view.forward(self._values[key]))
                self._refresh(other)


def write_back(call: Call) -> Write | None:
    """Return how to write to what a call makes a view of; None for a call that makes none."""
    name = call.short
    if name in ("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "_unsafe_view"):
        return lambda base, new: reshape(new, infer_shape(base))
    if name in ("detach", "alias", "contiguous", "data", "lift_fresh", "expand_as_"):
        return lambda base, new: new
    if name == "select":
        axis, index = call.axis(), call.whole(call.get("index"))
        return lambda base, new: written(
            base, unsqueeze(new, [axis]), axis, *_one(index, infer_shape(base)[axis])
        )
    if name == "slice":
        axis = call.axis() if call.get("dim") is not None else 0
        size = infer_shape(call["self"])[axis]
        start, end = call.whole(call.get("start", 0)), call.whole(call.get("end", size))
        bounds = slice(start, end, call.get("step", 1)).indices(size)
        return lambda base, new: written(base, new, axis, *bounds)
    if name == "narrow":
        axis, start = call.axis(), call.whole(call.get("start"))
        stop = start + call.whole(call.get("length"))
        return lambda base, new: written(base, new, axis, start, stop, 1)
    if name in ("transpose", "swapaxes"):
        first, second = (call.axis(n) for n in list(call.args)[1:3])
        return lambda base, new: swap(new, first, second)
    if name == "numpy_T":
        return lambda base, new: transpose(new, range(rank(new))[::-1])
    if name in ("t", "mT"):
        return lambda base, new: swap(new, -1, -2) if rank(new) > 1 else new
    if name == "permute":
        order = call.axes("dims")
        return lambda base, new: transpose(new, [order.index(a) for a in range(len(order))])
    return None


def _one(index: int, size: int) -> tuple[int, int, int]:
    place = index + size if index < 0 else index
    return place, place + 1, 1
