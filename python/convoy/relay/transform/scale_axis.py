"""FoldScaleAxis: products by a scale for each channel, moved into the weights around.

A message goes from an operator that can take a scale to the product: which axes the scale may have,
and whether it must be positive because a relu is passed. A product whose scale fits is dropped, and
the scale is carried to the operators that sent the message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from convoy.relay.ast import Call, Constant, Expr, op_call
from convoy.relay.transform.base import Pass, Sequential, register_pass
from convoy.relay.transform.fold_constant import FoldConstant
from convoy.relay.transform.layouts.names import tokens
from convoy.relay.transform.rewriting import expr_pass, is_primitive, op_name
from convoy.relay.types import TensorType
from convoy.relay.visit import children, post_order, rebuild

_POSITIVE = ("nn.relu", "nn.leaky_relu")  # f(s x) = s f(x) for s over 0
_SUMS = ("add", "subtract", "nn.bias_add")


@register_pass
def ForwardFoldScaleAxis() -> Pass:
    """Move scales into the weights of the convolutions and dense layers that follow."""
    return expr_pass("ForwardFoldScaleAxis", 3, lambda f: _Forward(f).folded())


@register_pass
def BackwardFoldScaleAxis() -> Pass:
    """Move scales into the weights of the convolutions and dense layers before."""
    return expr_pass("BackwardFoldScaleAxis", 3, lambda f: _Backward(f).folded())


@register_pass
def FoldScaleAxis() -> Pass:
    """Move scales into weights, those before the product first, and fold constants."""
    steps = [BackwardFoldScaleAxis(), ForwardFoldScaleAxis(), FoldConstant()]
    return Sequential(steps, 3, "FoldScaleAxis")


@dataclass(frozen=True)
class _Message:
    """A scale that an expression may be divided or multiplied by.

    Attributes:
        axes: The axes of the expression that the scale has: the channels, and those split off.
        positive: Whether the scale must be over zero.
    """

    axes: tuple[int, ...]
    positive: bool = False


@dataclass(frozen=True)
class _Scale:
    """A scale with the axes of `axes` alone, in order."""

    value: Expr
    axes: tuple[int, ...]


def _shape(expr: Expr) -> tuple[object, ...]:
    found = expr.checked_type
    return found.shape if isinstance(found, TensorType) else ()


def _fitting(data: Expr, scale: Expr, new_scale: Expr, axes: Sequence[int]) -> Expr | None:
    """Return a factor of `data` without the axes that it has not, None if it has others."""
    whole, part = _shape(data), _shape(scale)
    base = len(whole) - len(part)
    if base < 0:
        return None
    if any(axis < base for axis in axes) and part:
        return None
    others = [i for i in range(len(part)) if i + base not in axes]
    if any(part[i] != 1 for i in others):
        return None
    if any(part[a - base] != whole[a] for a in axes if part):
        return None
    return op_call("squeeze", [new_scale], axis=others) if others else new_scale


def _is_positive(scale: Expr) -> bool:
    while op_name(scale) in ("reshape", "expand_dims", "squeeze", "broadcast_to", "transpose"):
        scale = scale.args[0]  # type: ignore[attr-defined]
    return isinstance(scale, Constant) and bool((scale.value > 0).all())


def _spread(scale: _Scale, scalar: bool, shape: Sequence[object], axes: Sequence[int]) -> Expr:
    """Reshape a scale so that it broadcasts along axes of a tensor."""
    if scalar:
        return scale.value
    if len(axes) > 1:
        newshape = [d if i in axes else 1 for i, d in enumerate(shape)]
        return op_call("reshape", [scale.value], newshape=newshape)
    missing = len(shape) - axes[0] - 1
    if not missing:
        return scale.value
    return op_call("expand_dims", [scale.value], axis=1, num_newaxis=missing)


def _of_other(scale: _Scale, node: Call, other: int) -> Expr:
    """Reshape a scale for the other summand of a node."""
    if op_name(node) == "nn.bias_add":
        return scale.value
    whole, part = _shape(node), _shape(node.args[other])
    if len(scale.axes) > 1:
        return _spread(scale, _is_scalar(scale), whole, scale.axes)
    base = len(whole) - len(part)
    return _spread(scale, _is_scalar(scale), part, [a - base for a in scale.axes])


def _takes(node: Call, data: int, other: int, axes: Sequence[int]) -> bool:
    """Check that a sum may be scaled by scaling both summands."""
    if op_name(node) == "nn.bias_add":
        assert node.attrs is not None
        return data == 0 and tuple(axes) == (int(node.attrs["axis"]) % len(_shape(node)),)
    whole, part = node.args[data], node.args[other]
    return _shape(whole) == _shape(node) and _fitting(whole, part, part, axes) is not None


def _axes(layout: str, letter: str) -> tuple[int, ...]:
    """Return the dimensions of an axis: the axis itself, and what is split off it."""
    return tuple(i for i, t in enumerate(tokens(layout)) if t[-1].upper() == letter)


@dataclass(frozen=True)
class _Linear:
    """A convolution or dense layer.

    Attributes:
        data: The axes of the input's channels.
        result: The axes of the result's channels.
        inward: The axes of the weights that a scale of the input multiplies, () for none.
        outward: The axes of the weights that a scale of the result multiplies.
    """

    data: tuple[int, ...]
    result: tuple[int, ...]
    inward: tuple[int, ...]
    outward: tuple[int, ...]


def _linear(call: Expr) -> _Linear | None:
    """Describe a convolution or dense layer; None for anything else."""
    name = op_name(call)
    if name == "nn.dense":
        last = len(_shape(call.args[0])) - 1  # type: ignore[attr-defined]
        return _Linear((last,), (last,), (1,), (0,))
    if name not in ("nn.conv1d", "nn.conv2d", "nn.conv3d") or not isinstance(call, Call):
        return None
    attrs = call.attrs
    assert attrs is not None
    kernel, groups = attrs["kernel_layout"], int(attrs["groups"])
    data = _axes(attrs["data_layout"], "C")
    result = _axes(attrs["out_layout"] or attrs["data_layout"], "C")
    inner, outer = _axes(kernel, "I"), _axes(kernel, "O")
    if groups > 1:
        sizes = _shape(call.args[0])
        channels = 1
        for axis in data:
            size = sizes[axis]
            channels *= size if isinstance(size, int) else 0
        # One result for each channel: the weights' O counts input channels too.
        inner = outer if channels == groups == _count(call, outer) else ()
    return _Linear(data, result, inner, outer)


def _count(call: Call, axes: Sequence[int]) -> int:
    found = 1
    for axis in axes:
        size = _shape(call.args[1])[axis]
        found *= size if isinstance(size, int) else 0
    return found


def _scaled_weight(call: Call, weight: Expr, scale: _Scale, axes: tuple[int, ...]) -> Expr:
    """Multiply weights by a scale along axes."""
    return weight * _spread(scale, _is_scalar(scale), _shape(call.args[1]), axes)


def _is_scalar(scale: _Scale) -> bool:
    value = scale.value
    return isinstance(value, Constant) and value.value.ndim == 0


class _Forward:
    """Scales on their way from a product to what follows it."""

    def __init__(self, root: Expr) -> None:
        self.root = root
        self.nodes = list(post_order(root, lambda n: not is_primitive(n)))
        self.wishes: dict[int, list[_Message | None]] = {}
        self.memo: dict[int, Expr] = {}
        self.scales: dict[int, _Scale] = {}  # of rewritten nodes, by the id of the old ones

    def folded(self) -> Expr:
        for node in reversed(self.nodes):
            found = self._wished(node)
            for child, message in zip(children(node), self._messages(node, found), strict=True):
                self.wishes.setdefault(id(child), []).append(message)
        for node in self.nodes:
            self.memo[id(node)] = node if is_primitive(node) else self._node(node)
        return self.memo[id(self.root)]

    def _wished(self, node: Expr) -> _Message | None:
        """Return the message that all users of an expression agree on."""
        found = self.wishes.get(id(node), [None])
        first = found[0]
        if first is None or any(m is None or m.axes != first.axes for m in found):
            return None
        return _Message(first.axes, any(m.positive for m in found if m is not None))

    def _messages(self, node: Expr, wish: _Message | None) -> list[_Message | None]:
        """Return what a node lets its parts be divided by."""
        none: list[_Message | None] = [None] * len(children(node))
        name = op_name(node)
        if not isinstance(node, Call):
            return none
        linear = _linear(node)
        if linear is not None:
            none[1] = _Message(linear.data) if linear.inward else None
        elif wish is None:
            return none
        elif name in _POSITIVE:
            none[1] = _Message(wish.axes, True)
        elif name in _SUMS:
            for data, other in ((0, 1), (1, 0)):
                if _takes(node, data, other, wish.axes):
                    none[1 + data] = wish
                    break
        return none

    def _node(self, node: Expr) -> Expr:
        new = rebuild(node, self.memo)
        if not isinstance(node, Call) or not isinstance(new, Call):
            return new
        name, wish = op_name(node), self._wished(node)
        if name == "multiply" and wish is not None:
            for data, scale in ((0, 1), (1, 0)):
                found = self._product(node, new, wish, data, scale)
                if found is not None:
                    return found
        carried = [self.scales.get(id(a)) for a in node.args]
        linear = _linear(node)
        if linear is not None and carried[0] is not None:
            weight = _scaled_weight(node, new.args[1], carried[0], linear.inward)
            return Call(new.op, [new.args[0], weight], new.attrs, span=new.span)
        if name in _POSITIVE and carried[0] is not None:
            self.scales[id(node)] = carried[0]
        elif name in _SUMS and wish is not None:
            for data, other in ((0, 1), (1, 0)):
                moved = carried[data]
                if moved is not None:
                    return self._sum(node, new, moved, data, other)
        return new

    def _product(
        self, node: Call, new: Call, wish: _Message, data: int, factor: int
    ) -> Expr | None:
        scale = node.args[factor]
        if id(node.args[data]) in self.scales or (wish.positive and not _is_positive(scale)):
            return None
        if _shape(node.args[data]) != _shape(node):
            return None
        value = _fitting(node.args[data], scale, new.args[factor], wish.axes)
        if value is None:
            return None
        self.scales[id(node)] = _Scale(value, wish.axes)
        return new.args[data]

    def _sum(self, node: Call, new: Call, scale: _Scale, data: int, other: int) -> Expr:
        args = list(new.args)
        args[other] = args[other] / _of_other(scale, node, other)
        self.scales[id(node)] = scale
        return Call(new.op, args, new.attrs, span=new.span)


class _Backward:
    """Scales on their way from a product to what comes before it."""

    def __init__(self, root: Expr) -> None:
        self.root = root
        self.nodes = list(post_order(root, lambda n: not is_primitive(n)))
        self.users: dict[int, int] = {}
        for node in self.nodes:
            for child in children(node):
                self.users[id(child)] = self.users.get(id(child), 0) + 1
        self.offers: dict[int, _Message | None] = {}
        self.given: dict[int, _Scale] = {}  # the scale that an old node is to be multiplied by
        self.memo: dict[int, Expr] = {}

    def folded(self) -> Expr:
        for node in self.nodes:
            self.offers[id(node)] = self._offer(node)
        for node in reversed(self.nodes):
            self._give(node)
        for node in self.nodes:
            self.memo[id(node)] = node if is_primitive(node) else self._node(node)
        return self.memo[id(self.root)]

    def _offer(self, node: Expr) -> _Message | None:
        """Return what scale an expression can take on."""
        if not isinstance(node, Call):
            return None
        linear, name = _linear(node), op_name(node)
        if linear is not None:
            return _Message(linear.result) if linear.outward else None
        if name in _POSITIVE:
            inner = self._inner(node.args[0])
            return _Message(inner.axes, True) if inner else None
        if name in _SUMS:
            offers = [self._inner(a) for a in node.args]
            if offers[0] and offers[1] and offers[0].axes == offers[1].axes:
                return _Message(offers[0].axes, offers[0].positive or offers[1].positive)
            for data, other in ((0, 1), (1, 0)):
                found = offers[data]
                if found and _takes(node, data, other, found.axes):
                    return found
        return None

    def _inner(self, node: Expr) -> _Message | None:
        """Return the offer of an expression that nothing else uses."""
        return self.offers.get(id(node)) if self.users.get(id(node), 0) == 1 else None

    def _give(self, node: Expr) -> None:
        """Pass a scale on, or start with that of a product."""
        if not isinstance(node, Call):
            return
        name, scale = op_name(node), self.given.get(id(node))
        if name == "multiply" and scale is None:
            for data, factor in ((0, 1), (1, 0)):
                offer, value = self._inner(node.args[data]), node.args[factor]
                if offer is None or (offer.positive and not _is_positive(value)):
                    continue
                if _shape(node.args[data]) != _shape(node):
                    continue
                found = _fitting(node.args[data], value, value, offer.axes)
                if found is not None:
                    self.given[id(node.args[data])] = _Scale(found, offer.axes)
                    self.given[id(node)] = self.given[id(node.args[data])]
                    return
        if scale is None:
            return
        if name in _POSITIVE:
            self.given[id(node.args[0])] = scale
        elif name in _SUMS:
            offers = [self._inner(a) for a in node.args]
            both = offers[0] and offers[1] and offers[0].axes == offers[1].axes
            for data, other in ((0, 1), (1, 0)):
                wish = offers[data]
                if wish and (both or _takes(node, data, other, wish.axes)):
                    self.given[id(node.args[data])] = scale
                    if not both:
                        return

    def _node(self, node: Expr) -> Expr:
        new = rebuild(node, self.memo)
        scale = self.given.get(id(node))
        if scale is None or not isinstance(node, Call) or not isinstance(new, Call):
            return new
        scale = _Scale(self._new(scale.value), scale.axes)
        linear = _linear(node)
        if op_name(node) == "multiply":
            return new.args[0 if id(node.args[0]) in self.given else 1]
        if linear is not None:
            weight = _scaled_weight(node, new.args[1], scale, linear.outward)
            return Call(new.op, [new.args[0], weight], new.attrs, span=new.span)
        args = list(new.args)
        for i, arg in enumerate(node.args):
            if id(arg) not in self.given:
                args[i] = args[i] * _of_other(scale, node, i)
        return Call(new.op, args, new.attrs, span=new.span)

    def _new(self, scale: Expr) -> Expr:
        """Return a scale as it is after what it is made of was rewritten."""
        for node in post_order(scale):
            if id(node) not in self.memo:
                self.memo[id(node)] = rebuild(node, self.memo)
        return self.memo[id(scale)]
