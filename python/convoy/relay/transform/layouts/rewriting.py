"""The walk over a function that keeps values in the layout they were computed in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from convoy.relay import ast
from convoy.relay.ast import Call, Expr, Op, op_call
from convoy.relay.attrs import Attrs
from convoy.relay.transform.layouts.names import axes, expanded, renamed
from convoy.relay.transform.layouts.rules import RULES, InferCorrectLayoutOutput, Layouts
from convoy.relay.transform.rewriting import is_primitive
from convoy.relay.types import TupleType, Type
from convoy.relay.visit import children, post_order, rebuild

#: Makes the call that takes the place of one, given that and its new attributes and arguments.
Change = Callable[[Call, Attrs | None, list[Expr]], Call]


@dataclass(eq=False)
class Value:
    """A rewritten expression.

    Attributes:
        expr: The expression.
        old: The layout that it had, None where that is not known.
        new: The layout that it has.
    """

    expr: Expr
    old: str | None = None
    new: str | None = None


class LayoutRewriter:
    """Rewrite one function.

    Args:
        change: Changes calls.
        is_changed: Check for operators that are changed although no rule knows their layouts.
    """

    def __init__(self, change: Change, is_changed: Callable[[Op], bool]) -> None:
        self.change, self.is_changed = change, is_changed
        self.memo: dict[int, Value | list[Value]] = {}
        self.transforms: dict[tuple[int, str, str], Expr] = {}

    def rewrite(self, root: Expr) -> Expr:
        """Return the function in other layouts; parameters and results keep theirs."""
        for node in post_order(root, lambda n: not is_primitive(n)):
            self.memo[id(node)] = self._node(node)
        return self._plain(root)

    def _node(self, node: Expr) -> Value | list[Value]:
        if is_primitive(node):
            return Value(node)
        if isinstance(node, ast.Tuple):
            return [self._single(f) for f in node.fields]
        if isinstance(node, ast.TupleGetItem):
            found = self.memo[id(node.tuple_value)]
            if isinstance(found, list):
                return found[node.index]
        if isinstance(node, Call) and isinstance(node.op, Op):
            new = self._call(node, node.op)
            if new is not None:
                return new
        return Value(rebuild(node, {id(c): self._plain(c) for c in children(node)}))

    def _single(self, node: Expr) -> Value:
        found = self.memo[id(node)]
        return Value(self._plain(node)) if isinstance(found, list) else found

    def _plain(self, node: Expr) -> Expr:
        """Return the rewritten expression in the layout that it had."""
        found = self.memo[id(node)]
        if not isinstance(found, list):
            return self._as_before(found)
        fields = [self._as_before(v) for v in found]
        old = node.fields if isinstance(node, ast.Tuple) else ()
        if len(old) == len(fields) and all(a is b for a, b in zip(old, fields, strict=True)):
            return node
        made = ast.Tuple(fields)
        self.memo[id(node)] = Value(made)
        return made

    def _as_before(self, value: Value) -> Expr:
        if value.old is None or value.new is None:
            return value.expr
        return self.transform(value.expr, value.new, value.old)

    def _call(self, node: Call, op: Op) -> Value | list[Value] | None:
        """Rewrite a call in the layouts of its arguments; None leaves it as it is."""
        groups = [self.memo[id(a)] for a in node.args]
        inputs = [v for g in groups for v in (g if isinstance(g, list) else [g])]
        args = [ast.Tuple([v.expr for v in g]) if isinstance(g, list) else g.expr for g in groups]
        types = [a.checked_type for a in node.args]
        if self.is_changed(op) and _rule(op) is None:
            plain = [self._plain(a) for a in node.args]
            return Value(self.change(node, node.attrs, plain))
        first = _infer(op, node.attrs, None, [v.old for v in inputs], types)
        if first is None:
            return None
        old_in = list(first.input_layouts)
        now = [_in_letters_of(v, o) for v, o in zip(inputs, old_in, strict=True)]
        new = self.change(node, first.new_attrs, args)
        if not isinstance(new.op, Op):
            return None
        second = _infer(new.op, new.attrs, now, old_in, types)
        if second is None:
            return None
        wanted = iter(zip(now, second.input_layouts, strict=True))
        final: list[Expr] = []
        for arg in new.args:
            if isinstance(arg, ast.Tuple):
                final.append(ast.Tuple([self.transform(f, *next(wanted)) for f in arg.fields]))  # type: ignore[arg-type]
            else:
                final.append(self.transform(arg, *next(wanted)))  # type: ignore[arg-type]
        call = Call(new.op, final, second.new_attrs, span=node.span)
        results = list(zip(first.output_layouts, second.output_layouts, strict=True))
        if isinstance(node.checked_type, TupleType):
            return [Value(ast.TupleGetItem(call, i), o, n) for i, (o, n) in enumerate(results)]
        return Value(call, *results[0])

    def transform(self, expr: Expr, source: str, target: str) -> Expr:
        """Convert an expression from one layout to another, once."""
        if source == target:
            return expr
        key = (id(expr), source, target)
        if key not in self.transforms:
            self.transforms[key] = self._transformed(expr, source, target)
            self.kept = getattr(self, "kept", [])
            self.kept.append(expr)
        return self.transforms[key]

    def _transformed(self, expr: Expr, source: str, target: str) -> Expr:
        missing = len(axes(target)) - len(axes(source))
        if missing > 0:
            if not source:
                return expr  # a scalar broadcasts
            source = expanded(source, target)
            expr = op_call("expand_dims", [expr], axis=0, num_newaxis=missing)
            if source == target:
                return expr
        return op_call("layout_transform", [expr], src_layout=source, dst_layout=target)


def _in_letters_of(value: Value, old: str | None) -> str | None:
    """Return the layout that a value has, as the operator that calls its former one `old`."""
    if value.new is None or value.old is None or old is None:
        return old if value.new is None else value.new
    return renamed(value.new, value.old, old)


def _rule(op: Op) -> Callable[..., InferCorrectLayoutOutput] | None:
    return op.get_attr("FInferCorrectLayout") or RULES.get(op.name)


def _infer(
    op: Op, attrs: Attrs | None, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput | None:
    """Apply a rule; None where a layout remains unknown."""
    rule = _rule(op)
    if rule is None:
        return None
    found = rule(attrs, new, old, types)
    given, results = (
        [_name(x) for x in part] for part in (found.input_layouts, found.output_layouts)
    )
    if len(given) != len(old) or None in given or None in results:
        return None
    return InferCorrectLayoutOutput(given, results, found.new_attrs)


def _name(layout: object) -> str | None:
    """Return the name of a layout, which rules of users may return as an object."""
    if layout is None:
        return None
    found = str(getattr(layout, "name", layout))
    return None if found == "__undef__" else found
