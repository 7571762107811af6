"""PartitionGraph: regions of external compilers as functions of the module."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from convoy.relay import ast
from convoy.relay.ast import Call, Constant, Expr, Function, GlobalVar, Var
from convoy.relay.infer import infer_module
from convoy.relay.lazy import tvm
from convoy.relay.module import IRModule
from convoy.relay.transform.base import ModulePass, Pass, PassInfo, register_pass
from convoy.relay.transform.byoc.annotate import DEFAULT
from convoy.relay.transform.byoc.regions import (
    END,
    AnnotatedRegion,
    AnnotatedRegionSet,
    annotation,
    is_end,
)
from convoy.relay.visit import bind, children, post_order, rebuild


@register_pass
def PartitionGraph(mod_name: str = "default", bind_constants: bool = True) -> Pass:
    """Make a function of the module of every region, with the attributes that compilers ask for.

    Its name is `tvmgen_<mod_name>_<compiler>_<function>_<number>`; annotations with "default" are
    dropped.

    Args:
        mod_name: A part of the names.
        bind_constants: Keep constants inside the functions instead of passing them.
    """

    def run(mod: IRModule) -> IRModule:
        result = infer_module(mod).shallow_copy()
        for name in mod:
            if "Compiler" in (result[name].attrs or {}):
                continue
            function = _without_default(_flattened(result[name]))
            result[name] = function
            infer_module(result)
            found = _Partitioner(result[name], f"tvmgen_{mod_name}", name, bind_constants)
            result[name] = found.main
            for symbol, part in found.functions.items():
                result[symbol] = part
        return infer_module(result)

    return ModulePass(PassInfo(0, "PartitionGraph"), run)


def _flattened(function: Function) -> Function:
    """Close the fields of a tuple in the place of the tuple."""
    memo: dict[int, Expr] = {}
    for node in post_order(function):
        new = memo[id(node)] = rebuild(node, memo)
        if is_end(node) and isinstance(new, Call) and isinstance(new.args[0], ast.Tuple):
            fields = [Call(new.op, [f], new.attrs) for f in new.args[0].fields]
            memo[id(node)] = ast.Tuple(fields)
    return memo[id(function)]  # type: ignore[return-value]


def _without_default(function: Function) -> Function:
    memo: dict[int, Expr] = {}
    for node in post_order(function):
        new = memo[id(node)] = rebuild(node, memo)
        if (annotation(node) or ("", ""))[1] == DEFAULT:
            memo[id(node)] = new.args[0]  # type: ignore[attr-defined]
    return memo[id(function)]  # type: ignore[return-value]


@dataclass
class _Parts:
    """The function of a region: its parameters, their arguments, the call and its results."""

    params: list[Var] = field(default_factory=list)
    args: list[Expr] = field(default_factory=list)
    call: Call | None = None
    results: list[Expr] = field(default_factory=list)
    fields: list[Expr] = field(default_factory=list)


class _Partitioner:
    """The partitioning of one function.

    Attributes:
        main: What remains of it.
        functions: The new functions by name.
    """

    def __init__(self, function: Function, prefix: str, name: str, bind_constants: bool) -> None:
        self.prefix, self.name, self.bind_constants = prefix, name, bind_constants
        self.regions = AnnotatedRegionSet(function)
        self.parts: dict[AnnotatedRegion, _Parts] = {r: _Parts() for r in self.regions}
        self.functions: dict[str, Function] = {}
        self.memo: dict[int, Expr] = {}
        for node in post_order(function, parts=self._dependencies):
            self.memo[id(node)] = self._node(node)
        main = self.memo[id(function)]
        assert isinstance(main, Function)
        self.main = main

    def _dependencies(self, node: Expr) -> Sequence[Expr]:
        """Return a node's parts; for a result of a region all its results, which one call has."""
        if not is_end(node):
            return children(node)
        region = self.regions.get_region(node)
        assert region is not None
        return [children(node)[0], *(end.args[0] for end in region.rets)]  # type: ignore[attr-defined]

    def _node(self, node: Expr) -> Expr:
        found = annotation(node)
        if found is None:
            return rebuild(node, self.memo)
        assert isinstance(node, Call)
        region = self.regions.get_region(node)
        assert region is not None
        parts, inner = self.parts[region], self.memo[id(node.args[0])]
        if found[0] == END:
            if parts.call is None:
                self._lift(region, parts)
            assert parts.call is not None
            if len(parts.results) == 1:
                return parts.call
            return parts.fields[parts.results.index(inner)]
        for var, arg in zip(parts.params, parts.args, strict=True):
            if arg is inner:
                return var
        name = f"{region.target}_{region.id}_i{len(parts.params)}"
        var = Var(name, node.checked_type)
        parts.params.append(var)
        parts.args.append(inner)
        return var

    def _lift(self, region: AnnotatedRegion, parts: _Parts) -> None:
        """Make the function of a region and its call."""
        results = [self.memo[id(end.args[0])] for end in region.rets]  # type: ignore[attr-defined]
        parts.results = list(dict.fromkeys(results))
        body = parts.results[0] if len(parts.results) == 1 else ast.Tuple(parts.results)
        name = f"{self.prefix}_{region.target}_{self.name}_{region.id}"
        symbol = re.sub(r"[^0-9A-Za-z_]", "_", name)
        function = Function(parts.params, body)
        if self.bind_constants:
            pairs = zip(parts.params, parts.args, strict=True)
            constants = {p: a for p, a in pairs if _is_constant(a)}
            bound = bind(function, constants)
            assert isinstance(bound, Function)
            function = bound
            parts.args = [a for a in parts.args if not _is_constant(a)]
            parts.params = list(function.params)
        function = _optimized(function, region.target)
        attrs = {"Primitive": 1, "Inline": 1, "Compiler": region.target, "global_symbol": symbol}
        self.functions[symbol] = function.with_attr(attrs)
        parts.call = Call(GlobalVar(symbol), parts.args)
        parts.fields = [ast.TupleGetItem(parts.call, i) for i in range(len(parts.results))]


def _optimized(function: Function, target: str) -> Function:
    """Apply the pass that a script registered as `relay.ext.<compiler>.optimize`, if any."""
    optimize = tvm.get_global_func(f"relay.ext.{target}.optimize", allow_missing=True)
    if optimize is None:
        return function
    found = optimize(infer_module(IRModule.from_expr(function)))
    return found["main"]


def _is_constant(expr: Expr) -> bool:
    if isinstance(expr, ast.Tuple):
        return bool(expr.fields) and all(map(_is_constant, expr.fields))
    return isinstance(expr, Constant)
