"""A-normal form (a let for each value), graph form (no lets), basic blocks."""

from __future__ import annotations

from convoy.relay import adt, ast
from convoy.relay.ast import Expr, Function, Var
from convoy.relay.trampoline import Step, run
from convoy.relay.transform.base import Pass, register_pass
from convoy.relay.transform.rewriting import expr_pass, is_primitive, op_name
from convoy.relay.visit import children, post_order, rebuild

_ATOMS = (Var, ast.GlobalVar, ast.Op, adt.Constructor)


@register_pass
def ToGraphNormalForm() -> Pass:
    """Put values in the place of the variables of lets; sharing expresses that they are used twice.

    A function that calls itself keeps its let.
    """

    def rewrite(root: Expr) -> Expr:
        memo: dict[int, Expr] = {}
        bound: dict[int, list[Var]] = {}
        for node in post_order(root):
            if isinstance(node, ast.Let) and not _calls_itself(node):
                bound.setdefault(id(node.value), []).append(node.var)
        for node in post_order(root):
            if isinstance(node, Var) and id(node) in memo:
                continue
            if isinstance(node, ast.Let) and memo[id(node.var)] is not node.var:
                memo[id(node)] = memo[id(node.body)]
                continue
            memo[id(node)] = rebuild(node, memo)
            for var in bound.get(id(node), ()):
                memo[id(var)] = memo[id(node)]
        return memo[id(root)]

    return expr_pass("ToGraphNormalForm", 1, rewrite, typed=False)


def _calls_itself(let: ast.Let) -> bool:
    return isinstance(let.value, Function) and any(n is let.var for n in post_order(let.value))


@register_pass
def ToANormalForm() -> Pass:
    """Bind each value to a variable, in the innermost scope that all its users are in."""
    return expr_pass("ToANormalForm", 1, _Normalizer(everything=True).rewrite, typed=False)


def ToANormalFormExpr(expr: Expr) -> Expr:
    """Bind each value of an expression to a variable."""
    return _Normalizer(everything=True).rewrite(expr)


@register_pass
def ToBasicBlockNormalForm() -> Pass:
    """Bind the values that several branches or functions use where all of them see it."""
    rewrite = _Normalizer(everything=False).rewrite
    return expr_pass("ToBasicBlockNormalForm", 1, rewrite, typed=False)


class _Scope:
    """A function's body or a branch.

    Attributes:
        outer: The scope around it, None for the outermost.
        lets: Bindings so far, in order.
    """

    def __init__(self, outer: _Scope | None) -> None:
        self.outer = outer
        self.depth: int = 0 if outer is None else outer.depth + 1
        self.lets: list[tuple[Var, Expr]] = []


def _common(a: _Scope | None, b: _Scope) -> _Scope:
    """Return the innermost scope around both."""
    if a is None:
        return b
    while a is not b:
        if a.depth >= b.depth and a.outer is not None:
            a = a.outer
        else:
            assert b.outer is not None
            b = b.outer
    return a


class _Normalizer:
    """One conversion.

    Args:
        everything: Bind all values; otherwise those that are used in another scope as well.
    """

    def __init__(self, everything: bool) -> None:
        self.everything = everything

    def rewrite(self, root: Expr) -> Expr:
        """Convert an expression."""
        self.count = 0
        self.done: dict[int, Expr] = {}
        self.inner: dict[tuple[int, str], _Scope] = {}
        top = _Scope(None)
        self.home, self.lifted = self._homes(root, top)
        step = self._node if isinstance(root, Function) else self._block
        return run(step(root, top))

    # ---- where values belong

    def _homes(self, root: Expr, top: _Scope) -> tuple[dict[int, _Scope], set[int]]:
        """Return the scope of each expression, and those that are used in several scopes."""
        users: dict[int, list[tuple[Expr, str]]] = {}
        order = list(post_order(root, lambda n: not is_primitive(n)))
        for node in order:
            if is_primitive(node):
                continue
            for part, name in _parts(node):
                users.setdefault(id(part), []).append((node, name))
        home: dict[int, _Scope] = {id(root): top}
        lifted: set[int] = set()
        for node in reversed(order):
            found: _Scope | None = home.get(id(node))
            places: list[_Scope] = []
            for user, name in users.get(id(node), ()):
                scope = home[id(user)]
                if name:
                    key = (id(user), name)
                    scope = self.inner.setdefault(key, _Scope(scope))
                places.append(scope)
            for place in places:
                found = _common(found, place)
            home[id(node)] = top if found is None else found
            if any(place is not found for place in places):
                lifted.add(id(node))
        return home, lifted

    # ---- conversion

    def _block(self, expr: Expr, scope: _Scope) -> Step:
        """Convert a body; wrap it into the lets of its scope."""
        body = yield self._value(expr)
        return _wrapped(scope, body)

    def _value(self, root: Expr) -> Step:
        """Convert an expression, and what it needs, in steps of a trampoline."""
        stack: list[Expr] = [root]
        while stack:
            node = stack[-1]
            if id(node) in self.done:
                stack.pop()
                continue
            waiting = [p for p, name in _parts(node) if not name and id(p) not in self.done]
            if isinstance(node, ast.Let):
                waiting = [node.value] if id(node.value) not in self.done else []
                if not waiting and id(node.body) not in self.done:
                    self._bind_let(node)
                    waiting = [node.body]
            if waiting and not is_primitive(node):
                stack.extend(reversed(waiting))
                continue
            stack.pop()
            scope = self.home[id(node)]
            new = yield self._node(node, scope)
            self.done[id(node)] = self._named(node, new, scope)
        return self.done[id(root)]

    def _bind_let(self, node: ast.Let) -> None:
        if id(node.var) not in self.done:
            self.done[id(node.var)] = node.var
            lets = self.home[id(node)].lets
            value = self.done[id(node.value)]
            # The value was bound to a variable of its own just before: that one is not needed.
            if lets and lets[-1][0] is value and self._fresh(lets[-1][0]):
                value = lets.pop()[1]
                self.done[id(node.value)] = node.var
            lets.append((node.var, value))

    def _fresh(self, var: Var) -> bool:
        return var.name_hint.startswith("x") and var.type_annotation is None

    def _named(self, node: Expr, new: Expr, scope: _Scope) -> Expr:
        """Return the variable that a value is bound to, or the value itself."""
        if isinstance(node, (*_ATOMS, ast.Let)):
            return new
        if not self.everything and id(node) not in self.lifted:
            return new
        if not self.everything and isinstance(node, ast.Constant):
            return new
        if op_name(node) == "on_device" and isinstance(new, ast.Call):
            return new
        var = Var(f"x{self.count}", None)
        self.count += 1
        scope.lets.append((var, new))
        return var

    def _node(self, node: Expr, scope: _Scope) -> Step:
        """Rebuild a node of converted parts."""
        memo = {id(p): self.done.get(id(p), p) for p in children(node)}
        if isinstance(node, Function) and not is_primitive(node):
            for param in node.params:
                self.done[id(param)] = param
            inner = self.inner.setdefault((id(node), "body"), _Scope(scope))
            memo[id(node.body)] = yield self._block(node.body, inner)
        elif isinstance(node, ast.If):
            bodies = []
            for name, branch in (("true", node.true_branch), ("false", node.false_branch)):
                inner = self.inner.setdefault((id(node), name), _Scope(scope))
                bodies.append((yield self._block(branch, inner)))
            return ast.If(memo[id(node.cond)], bodies[0], bodies[1], span=node.span)
        elif isinstance(node, adt.Match):
            for index, clause in enumerate(node.clauses):
                for var in adt.pattern_vars(clause.lhs):
                    self.done[id(var)] = var
                inner = self.inner.setdefault((id(node), f"clause {index}"), _Scope(scope))
                memo[id(clause.rhs)] = yield self._block(clause.rhs, inner)
        elif isinstance(node, ast.Let):
            return self.done[id(node.body)]
        elif is_primitive(node):
            return node
        return rebuild(node, memo)


def _wrapped(scope: _Scope, body: Expr) -> Expr:
    for var, value in reversed(scope.lets):
        body = ast.Let(var, value, body)
    scope.lets = []
    return body


def _parts(node: Expr) -> list[tuple[Expr, str]]:
    """Return the parts of a node, each with the name of the scope of its own that it has."""
    if is_primitive(node):
        return []
    if isinstance(node, Function):
        return [*((p, "body") for p in node.params), (node.body, "body")]
    if isinstance(node, ast.If):
        return [(node.cond, ""), (node.true_branch, "true"), (node.false_branch, "false")]
    if isinstance(node, adt.Match):
        found = [(node.data, "")]
        for index, clause in enumerate(node.clauses):
            scope = f"clause {index}"
            found += [(var, scope) for var in adt.pattern_vars(clause.lhs)]
            found.append((clause.rhs, scope))
        return found
    return [(child, "") for child in children(node)]
