"""Passes over the functions of a module: Inline, LambdaLift, EtaExpand."""

from __future__ import annotations

from convoy.relay import ast
from convoy.relay.adt import Constructor
from convoy.relay.ast import Call, Expr, Function, GlobalVar, Var
from convoy.relay.infer import infer_module
from convoy.relay.module import IRModule
from convoy.relay.transform.base import ModulePass, Pass, PassInfo, register_pass
from convoy.relay.transform.rewriting import is_primitive
from convoy.relay.types import FuncType, TypeCall
from convoy.relay.visit import free_vars, post_order, rebuild, rewrite


@register_pass
def Inline() -> Pass:
    """Put the functions with the attribute `Inline` in the places where they are named.

    Functions that call themselves, or each other in a circle, stay, and so do those that nothing
    names. The others are dropped from the module.
    """

    def run(mod: IRModule) -> IRModule:
        result = mod.shallow_copy()
        names = [n for n in mod if (mod[n].attrs or {}).get("Inline") and not _recursive(mod, n)]
        inlined: dict[str, Function] = {}
        for name in _callees_first(mod, names):
            inlined[name] = _inline(mod[name], inlined)
        for name in mod:
            result[name] = inlined.get(name) or _inline(mod[name], inlined)
        for name in inlined:
            if _named(mod, name) and not _named(result, name):
                del result[name]
        return infer_module(result)

    return ModulePass(PassInfo(1, "InlineGlobals"), run)


def _globals(expr: Expr) -> list[str]:
    return [n.name_hint for n in post_order(expr) if isinstance(n, GlobalVar)]


def _named(mod: IRModule, name: str) -> bool:
    return any(name in _globals(mod[other]) for other in mod)


def _recursive(mod: IRModule, name: str) -> bool:
    """Check whether a function comes back to itself."""
    todo, seen = _globals(mod[name]), set()
    while todo:
        other = todo.pop()
        if other == name:
            return True
        if other not in seen and other in mod:
            seen.add(other)
            todo += _globals(mod[other])
    return False


def _callees_first(mod: IRModule, names: list[str]) -> list[str]:
    order: dict[str, None] = {}
    stack = [(name, False) for name in reversed(names)]
    while stack:
        name, done = stack.pop()
        if done:
            order[name] = None
        elif name not in order:
            stack.append((name, True))
            stack += [(n, False) for n in _globals(mod[name]) if n in names and n != name]
    return list(order)


def _inline(function: Function, inlined: dict[str, Function]) -> Function:
    """Replace the names of functions: by their body in a call, else by the function."""
    memo: dict[int, Expr] = {}
    for node in post_order(function):
        new = rebuild(node, memo)
        if isinstance(node, Call) and isinstance(node.op, GlobalVar):
            callee = inlined.get(node.op.name_hint)
            if callee is not None and isinstance(new, Call):
                new = _applied(callee, new)
        elif isinstance(node, GlobalVar) and node.name_hint in inlined:
            new = _copied(inlined[node.name_hint])
        memo[id(node)] = new
    found = memo[id(function)]
    assert isinstance(found, Function)
    return found


def _applied(callee: Function, call: Call) -> Expr:
    """Return a call of a function, or its body where that may be taken apart."""
    copy = _copied(callee)
    if callee.attrs and ("Primitive" in callee.attrs or "Compiler" in callee.attrs):
        return Call(copy, call.args, span=call.span)
    body: Expr = copy.body
    binds = dict(zip(copy.params, call.args, strict=True))
    return rewrite(body, lambda n: binds.get(n) if isinstance(n, Var) else None)


def _copied(function: Function) -> Function:
    """Return the function with variables of its own."""
    fresh: dict[Var, Var] = {}

    def replace(node: Expr) -> Expr | None:
        if isinstance(node, Var) and node in bound:
            return fresh.setdefault(node, Var(node.name_hint, node.type_annotation))
        return None

    bound = {v for n in post_order(function) if isinstance(n, Function) for v in n.params}
    bound |= {n.var for n in post_order(function) if isinstance(n, ast.Let)}
    new = rewrite(function, replace)
    assert isinstance(new, Function)
    return new


@register_pass
def LambdaLift() -> Pass:
    """Make functions inside functions ones of the module; what they use is passed along."""

    def run(mod: IRModule) -> IRModule:
        result = infer_module(mod).shallow_copy()
        for name in mod:
            if not is_primitive(mod[name]):
                result[name] = _lift(mod[name], result)
        return infer_module(result)

    return ModulePass(PassInfo(1, "LambdaLift"), run)


def _lift(root: Function, mod: IRModule) -> Function:
    """Lift the functions inside one; add them to the module."""
    owner = {id(n.value): n.var for n in post_order(root) if isinstance(n, ast.Let)}
    memo: dict[int, Expr] = {}
    for node in post_order(root, lambda n: not is_primitive(n)):
        new = memo[id(node)] = node if is_primitive(node) else rebuild(node, memo)
        if not isinstance(new, Function) or node is root or is_primitive(node):
            continue
        name = _fresh(mod, f"lifted_name{abs(hash(str(id(node)))) % 10**8}")
        own = owner.get(id(node))
        captured = [v for v in free_vars(new) if v is not own]
        target = GlobalVar(name)
        lifted: Expr = target if not captured else Call(target, captured)
        body = new.body
        if own is not None and any(v is own for v in free_vars(new)):
            body = rewrite(body, lambda n, own=own, to=lifted: to if n is own else None)  # type: ignore[misc]
        inner = Function(new.params, body, new.ret_type, new.type_params, new.attrs)
        if captured:
            inner = Function(captured, inner, None, (), {"Closure": 1})
            inner = _copied_params(inner)
        mod[target] = inner
        memo[id(node)] = lifted
    found = memo[id(root)]
    assert isinstance(found, Function)
    return found


def _copied_params(function: Function) -> Function:
    """Give the parameters of a closure variables of their own, with their types."""
    fresh = {p: Var(p.name_hint, p.type_) for p in function.params}
    body = rewrite(function.body, lambda n: fresh.get(n) if isinstance(n, Var) else None)
    return Function(list(fresh.values()), body, None, (), function.attrs)


def _fresh(mod: IRModule, name: str) -> str:
    while name in mod:
        name += "_"
    return name


@register_pass
def EtaExpand(expand_constructor: bool = False, expand_global_var: bool = False) -> Pass:
    """Write functions that are values as functions that call them.

    Args:
        expand_constructor: Constructors of algebraic data types.
        expand_global_var: Functions of the module.
    """
    kinds = (Constructor,) * expand_constructor + (GlobalVar,) * expand_global_var

    def run(mod: IRModule) -> IRModule:
        result = infer_module(mod).shallow_copy()
        for name in mod:
            result[name] = _expand(mod[name], mod, kinds)
        return infer_module(result)

    return ModulePass(PassInfo(1, "EtaExpand"), run)


def _expand(function: Function, mod: IRModule, kinds: tuple[type, ...]) -> Function:
    called = {id(n.op) for n in post_order(function) if isinstance(n, Call)}
    memo: dict[int, Expr] = {}
    for node in post_order(function):
        new = memo[id(node)] = rebuild(node, memo)
        if isinstance(node, kinds) and id(node) not in called:
            found = _function_type(node, mod)
            params = [Var(f"eta_expand_param{i}", t) for i, t in enumerate(found.arg_types)]
            memo[id(node)] = Function(params, Call(new, params), found.ret_type, found.type_params)
    result = memo[id(function)]
    assert isinstance(result, Function)
    return result


def _function_type(node: Expr, mod: IRModule) -> FuncType:
    """Return the type of a function of the module or of a constructor, with its parameters."""
    if isinstance(node, Constructor):
        data = mod[node.belong_to]
        return FuncType(node.inputs, TypeCall(data.header, data.type_vars), data.type_vars)
    found = node.checked_type
    assert isinstance(found, FuncType)
    return found
