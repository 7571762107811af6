"""DeadCodeElimination: drop values that nothing uses, inline those used once."""

from __future__ import annotations

from collections import Counter

from convoy.relay import ast
from convoy.relay.adt import Constructor, RefRead, RefWrite
from convoy.relay.ast import Expr, Function, GlobalVar, Var
from convoy.relay.transform.base import Pass, register_pass
from convoy.relay.transform.rewriting import expr_pass, op_name
from convoy.relay.visit import children, post_order, rebuild


@register_pass
def DeadCodeElimination(inline_once: bool = False, ignore_impurity: bool = False) -> Pass:
    """Drop lets whose variable nothing uses.

    Args:
        inline_once: Put the value of a variable that is used once in its place, unless a function
            stands between them.
        ignore_impurity: Drop also calls of functions that are unknown, and writes of references.
    """

    def run(function: Expr) -> Expr:
        return _eliminate(function, inline_once, ignore_impurity)

    return expr_pass("DeadCodeElimination", 1, run, typed=False)


def _eliminate(root: Expr, inline_once: bool, ignore_impurity: bool) -> Expr:
    used = _uses(root, ignore_impurity)
    depth = _depths(root)
    memo: dict[int, Expr] = {}
    values: dict[int, list[Var]] = {}
    others: dict[Var, Var] = {}
    for node in post_order(root):
        if isinstance(node, ast.Let) and isinstance(node.value, Var):
            others[node.var] = node.value
        elif isinstance(node, ast.Let):
            values.setdefault(id(node.value), []).append(node.var)

    def once(var: Var) -> bool:
        return inline_once and used[var] == 1 and len(depth[var]) == 1

    for node in post_order(root):
        if isinstance(node, Var):
            # Another variable, bound further out, has its value already.
            value = others[node] if node in others and once(node) else node
            memo.setdefault(id(node), memo.get(id(value), value))
            continue
        if isinstance(node, ast.Let):
            gone = not used[node.var] or memo[id(node.var)] is not node.var
            memo[id(node)] = memo[id(node.body)] if gone else rebuild(node, memo)
            continue
        memo[id(node)] = rebuild(node, memo)
        for var in values.get(id(node), ()):
            pure = _is_pure(node) or ignore_impurity
            moved = once(var) and pure and not isinstance(node, Function)
            # What is read earlier may be written in between.
            moved = moved and not any(isinstance(n, RefRead) for n in post_order(node))
            memo[id(var)] = memo[id(node)] if moved else var
    return memo[id(root)]


def _uses(root: Expr, ignore_impurity: bool) -> Counter[Var]:
    """Count the uses of each variable from code that is itself used."""
    found: Counter[Var] = Counter()
    waiting: dict[Var, Expr] = {}
    seen: set[int] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, Var):
            found[node] += 1
            if node in waiting:
                stack.append(waiting.pop(node))
            continue
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, ast.Let):
            if found[node.var] or (not ignore_impurity and not _is_pure(node.value)):
                stack.append(node.value)
                found[node.var] += 0 if _is_pure(node.value) else 1
            else:
                waiting[node.var] = node.value
            stack.append(node.body)
        elif isinstance(node, Function):
            stack.append(node.body)
        else:
            stack.extend(children(node))
    return found


def _is_pure(value: Expr) -> bool:
    """Check that computing a value has no effect but the value."""
    if isinstance(value, Function):
        return True
    for node in post_order(value, lambda n: not isinstance(n, Function)):
        if isinstance(node, RefWrite):
            return False
        if isinstance(node, ast.Call):
            callee = node.op
            if isinstance(callee, (Var, GlobalVar)) or op_name(node).startswith("memory."):
                return False
            if not op_name(node) and not isinstance(callee, (Constructor, Function)):
                return False
    return True


def _depths(root: Expr) -> dict[Var, set[int]]:
    """Return, for each variable, the functions and branches where it is bound and used."""
    found: dict[Var, set[int]] = {}
    stack: list[tuple[Expr, int]] = [(root, 0)]
    seen: set[tuple[int, int]] = set()
    while stack:
        node, inside = stack.pop()
        if (id(node), inside) in seen:
            continue
        seen.add((id(node), inside))
        if isinstance(node, Var):
            found.setdefault(node, set()).add(inside)
        elif isinstance(node, Function):
            stack.extend((child, id(node)) for child in children(node))
        else:
            stack.extend((child, inside) for child in children(node))
    return found
