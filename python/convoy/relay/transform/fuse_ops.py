"""FuseOps: group operators into primitive functions; DefuseOps: take them apart again.

An operator joins the one that all paths from it lead to, its immediate post-dominator, where what
is on the paths allows it: elementwise operators behind a convolution, injective ones among each
other, a reduction at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from convoy.relay.ast import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from convoy.relay.fusion_kinds import (
    BROADCAST,
    COMM_REDUCE,
    ELEMWISE,
    INJECTIVE,
    OPAQUE,
    OUT_ELEMWISE_FUSABLE,
    TUPLE,
)
from convoy.relay.trampoline import Step, run
from convoy.relay.transform.base import Pass, register_pass
from convoy.relay.transform.context import PassContext
from convoy.relay.transform.rewriting import expr_pass, is_primitive, op_name
from convoy.relay.types import TensorType, TupleType, Type
from convoy.relay.visit import children, post_order, rebuild, rewrite

_RESHAPES = {"reshape", "contrib_reverse_reshape", "expand_dims", "squeeze", "nn.batch_flatten"}
# These stay outside of functions.
_OUTSIDE = ("annotation.", "on_device", "memory.", "vm.", "device_copy")
_MAX_DEPTH = 256


@register_pass
def FuseOps(fuse_opt_level: int = -1) -> Pass:
    """Group operators into functions with the attribute `Primitive`.

    Args:
        fuse_opt_level: 0 makes a function of each operator; -1 is the level of the PassContext.
    """

    def fuse(function: Function) -> Expr:
        context = PassContext.current()
        level = context.opt_level if fuse_opt_level < 0 else fuse_opt_level
        depth = int(context.config.get("relay.FuseOps.max_depth", _MAX_DEPTH))
        link = bool(context.config.get("relay.FuseOps.link_params", False))
        graph = _Graph(function)
        if level > 0:
            _Partition(graph, depth).run()
        return _Mutator(graph, link).rewrite(function)

    return expr_pass("FuseOps", 0, fuse)


@register_pass
def DefuseOps() -> Pass:
    """Put the bodies of primitive functions in the places of their calls."""

    def defuse(expr: Expr) -> Expr:
        memo: dict[int, Expr] = {}
        for node in post_order(expr):
            new = memo[id(node)] = rebuild(node, memo)
            if isinstance(new, Call) and isinstance(new.op, Function) and is_primitive(new.op):
                binds = dict(zip(new.op.params, new.args, strict=True))
                memo[id(node)] = rewrite(new.op.body, lambda n, b=binds: b.get(n))  # type: ignore[misc]
        return memo[id(expr)]

    return expr_pass("DefuseOps", 0, defuse)


@dataclass(eq=False)
class _Node:
    """An expression in the graph, and the group it is in.

    Attributes:
        expr: The expression.
        kind: How it may be fused; that of its group is the group's root's.
        outputs: Users, each with the kind of the edge.
        outside: Whether something uses it that is no operator.
        above: Its immediate post-dominator, with the greatest kind on the paths to it.
        anchored: Whether the group has a convolution or the like.
    """

    expr: Expr
    kind: int = OPAQUE
    outputs: list[tuple[_Node, int]] = field(default_factory=list)
    outside: bool = False
    depth: int = 1
    above: _Node | None = None
    path_kind: int = OPAQUE
    parent: _Node | None = None
    group_kind: int = OPAQUE
    size: int = 1
    anchored: bool = False

    def root(self) -> _Node:
        """Return the node that stands for the group."""
        node = self
        while node.parent is not None:
            node = node.parent
        if node is not self:
            self.parent = node
        return node


class _Graph:
    """The nodes of a function in post order, with their users and post-dominators."""

    def __init__(self, function: Function) -> None:
        self.order: list[_Node] = []
        self.nodes: dict[int, _Node] = {}
        exprs = list(post_order(function, lambda n: not is_primitive(n)))
        for expr in exprs:
            self.nodes[id(expr)] = _Node(expr)
        for expr in exprs:
            self._connect(expr, self.nodes[id(expr)])
            self.order.append(self.nodes[id(expr)])
        for node in reversed(self.order):
            _dominate(node)
        for node in self.order:
            node.group_kind = node.kind
            node.anchored = node.kind == OUT_ELEMWISE_FUSABLE

    def _use(self, expr: Expr, user: _Node | None, kind: int = OPAQUE) -> None:
        node = self.nodes[id(expr)]
        if user is None:
            node.outside = True
        else:
            node.outputs.append((user, kind))

    def _connect(self, expr: Expr, node: _Node) -> None:
        if is_primitive(expr):
            return
        if isinstance(expr, Constant):
            scalar = expr.value.ndim == 0 and expr.value.dtype.name in (
                "int32", "int64", "float32", "float64", "bool",
            )  # fmt: skip
            node.kind = ELEMWISE if scalar else OPAQUE
        elif isinstance(expr, Call) and op_name(expr):
            node.kind = _kind(expr)
            for arg in expr.args:
                same = arg.checked_type == expr.checked_type or _same_shape(arg, expr)
                kind = ELEMWISE if node.kind == BROADCAST and same else node.kind
                self._use(arg, node, kind)
        elif isinstance(expr, Call):
            for part in (expr.op, *expr.args):
                self._use(part, node if part is not expr.op else None)
        elif isinstance(expr, Tuple):
            node.kind = TUPLE
            for part in expr.fields:
                tensor = isinstance(part.checked_type, TensorType)
                self._use(part, node if tensor else None, INJECTIVE)
        elif isinstance(expr, TupleGetItem):
            found = expr.tuple_value.checked_type
            assert isinstance(found, TupleType)
            tensors = all(isinstance(f, TensorType) for f in found.fields)
            node.kind = INJECTIVE if tensors else OPAQUE
            self._use(expr.tuple_value, node if tensors else None, INJECTIVE)
        else:
            for part in children(expr):
                self._use(part, None)


def _kind(call: Call) -> int:
    registered = call.op.get_attr("TOpPattern")  # type: ignore[attr-defined]
    return OPAQUE if registered is None else int(registered)


def _same_shape(a: Expr, b: Expr) -> bool:
    ta, tb = a.checked_type, b.checked_type
    return isinstance(ta, TensorType) and isinstance(tb, TensorType) and ta.shape == tb.shape


def _dominate(node: _Node) -> None:
    """Find the immediate post-dominator of a node, after those of its users."""
    if node.outside or not node.outputs:
        return
    above: _Node | None = node.outputs[0][0]
    kind = max(ELEMWISE, node.outputs[0][1])
    for user, edge in node.outputs[1:]:
        other: _Node | None = user
        while above is not other:
            if above is None or other is None:
                above = None
                break
            first, second = above.depth >= other.depth, other.depth >= above.depth
            if first:
                kind, above = max(kind, above.path_kind), above.above
            if second:
                kind, other = max(kind, other.path_kind), other.above
        kind = max(kind, edge)
        if above is None:
            break
    node.above, node.path_kind = above, kind
    node.depth = 1 if above is None else above.depth + 1


class _Partition:
    """Groups the nodes of a graph.

    Args:
        graph: The graph.
        max_depth: The greatest number of nodes of a group.
    """

    def __init__(self, graph: _Graph, max_depth: int) -> None:
        self.graph, self.max_depth = graph, max_depth

    def run(self) -> None:
        """Fuse convolutions first, then injective operators, then what is in front of tuples."""
        for phase in range(3):
            for node in self.graph.order:
                self._try(node, phase)

    def _try(self, node: _Node, phase: int) -> None:
        sink, kind = node.above, node.group_kind
        if kind == OPAQUE or sink is None or self._size_with(node, sink) > self.max_depth:
            return
        if phase == 2:
            root = sink.root()
            into_tuple = sink.group_kind == TUPLE and root.group_kind <= INJECTIVE
            if kind <= INJECTIVE and root.group_kind != TUPLE and into_tuple:
                self._fuse_if(node, sink, INJECTIVE, (INJECTIVE,))
            return
        if node.root() is sink.root() or sink.group_kind == TUPLE:
            return
        if kind == OUT_ELEMWISE_FUSABLE:
            if phase == 0 and node.path_kind == ELEMWISE:
                self._fuse_if(node, sink, BROADCAST, ())
        elif kind <= BROADCAST:
            if node.path_kind <= INJECTIVE or node.path_kind == COMM_REDUCE:
                ends = (COMM_REDUCE, INJECTIVE, OUT_ELEMWISE_FUSABLE)
                self._fuse_if(node, sink, INJECTIVE, ends)
        elif kind in (INJECTIVE, TUPLE) and phase == 1:
            self._fuse_if(node, sink, INJECTIVE, ())

    def _between(self, node: _Node, sink: _Node) -> list[_Node]:
        """Return the nodes on the paths to the sink, the sink included."""
        found: dict[int, _Node] = {}
        todo = [user for user, _ in node.outputs]
        while todo:
            user = todo.pop()
            if id(user) not in found:
                found[id(user)] = user
                if user is not sink:
                    todo += [other for other, _ in user.outputs]
        return list(found.values())

    def _fuse_if(self, node: _Node, sink: _Node, most: int, ends: tuple[int, ...]) -> None:
        """Fuse a node into its sink if the kinds on the way, and that of the sink, allow it."""
        between = self._between(node, sink)
        for user in between:
            kind = user.root().group_kind
            if kind > most and not (user is sink and kind in ends):
                return
        for member in [node, *(u for u in between if u is not sink)]:
            _merge(member, sink)

    def _size_with(self, node: _Node, sink: _Node) -> int:
        members = [node, *(u for u in self._between(node, sink) if u is not sink)]
        own = sink.root()
        roots = {id(m.root()): m.root() for m in members if m.root() is not own}
        return own.size + sum(root.size for root in roots.values())


def _merge(child: _Node, parent: _Node) -> None:
    child, parent = child.root(), parent.root()
    if child is not parent:
        parent.size += child.size
        child.parent = parent
        if child.anchored:
            parent.anchored = True
            parent.group_kind = max(child.group_kind, parent.group_kind)


class _Mutator:
    """Writes groups as functions.

    Args:
        graph: The grouped graph.
        link_params: Keep constants inside of functions.
    """

    def __init__(self, graph: _Graph, link_params: bool) -> None:
        self.graph, self.link_params = graph, link_params
        self.memo: dict[int, Expr] = {}
        # Parameters and arguments by group.
        self.params: dict[int, list[tuple[Expr, Var]]] = {}

    def rewrite(self, root: Expr) -> Expr:
        """Return the function with groups as calls of primitive functions."""
        result: Expr = run(self._mutate(root))
        return result

    def _mutate(self, expr: Expr) -> Step:
        """Rewrite an expression, in steps of a trampoline, arguments from left to right."""
        if id(expr) not in self.memo:
            self.memo[id(expr)] = yield self._node(expr)
        return self.memo[id(expr)]

    def _node(self, expr: Expr) -> Step:
        if is_primitive(expr) or not children(expr):
            return expr
        node = self.graph.nodes[id(expr)]
        group = node.root()
        is_root = group is node
        if op_name(expr) == "annotation.stop_fusion":  # it has done its work
            assert isinstance(expr, Call)
            return (yield self._mutate(expr.args[0]))
        if op_name(expr) and not op_name(expr).startswith(_OUTSIDE):
            assert isinstance(expr, Call)
            args = yield self._arguments(expr.args, group)
            call = Call(expr.op, args, expr.attrs, expr.type_args, span=expr.span)
            return self._function(group, expr.checked_type, call) if is_root else call
        if isinstance(expr, Tuple) and not is_root:
            return Tuple((yield self._arguments(expr.fields, group)), span=expr.span)
        if isinstance(expr, TupleGetItem):
            inner = self.graph.nodes[id(expr.tuple_value)].root()
            if not (is_root and inner is not group):
                (value,) = yield self._arguments([expr.tuple_value], group)
                item = TupleGetItem(value, expr.index, span=expr.span)
                return self._function(group, expr.checked_type, item) if is_root else item
        memo = {}
        for part in children(expr):
            memo[id(part)] = yield self._mutate(part)
        return rebuild(expr, memo)

    def _arguments(self, args: object, group: _Node) -> Step:
        found = []
        for arg in args:  # type: ignore[attr-defined]
            new = yield self._mutate(arg)
            if self.graph.nodes[id(arg)].root() is not group and not (
                self.link_params and isinstance(new, Constant)
            ):
                new = self._parameter(group, new, arg.checked_type)
            found.append(new)
        return found

    def _parameter(self, group: _Node, arg: Expr, type_: Type) -> Var:
        known = self.params.setdefault(id(group), [])
        for value, var in known:
            if value is arg:
                return var
        var = Var(f"p{len(known)}", type_)
        known.append((arg, var))
        return var

    def _function(self, group: _Node, type_: Type, body: Expr) -> Expr:
        known = self.params.get(id(group), [])
        attrs = {"Primitive": 1}
        calls = [n for n in post_order(body) if isinstance(n, Call)]
        if calls and all(op_name(c) in _RESHAPES for c in calls):
            attrs["relay.reshape_only"] = 1
        function = Function([var for _, var in known], body, type_, (), attrs)
        return Call(function, [value for value, _ in known])
