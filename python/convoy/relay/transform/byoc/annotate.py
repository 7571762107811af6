"""AnnotateTarget: mark what external compilers take."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.relay import adt, ast
from convoy.relay.ast import Call, Expr, Function, Op, op_call
from convoy.relay.transform.base import Pass, register_pass
from convoy.relay.transform.byoc.regions import BEGIN, END, annotation
from convoy.relay.transform.rewriting import expr_pass
from convoy.relay.visit import children, post_order, rebuild

DEFAULT = "default"
_Compound = (ast.Tuple, ast.TupleGetItem, adt.RefCreate, adt.RefRead, adt.RefWrite)


@register_pass
def AnnotateTarget(targets: str | Sequence[str], include_non_call_ops: bool = True) -> Pass:
    """Put compiler_begin and compiler_end around the calls that compilers take.

    A compiler takes an operator where the function that is registered for it under the key
    `target.<compiler>` returns True, and functions whose attribute Composite is
    `<compiler>.<name>`. All other calls are annotated with "default", which PartitionGraph drops.

    Args:
        targets: The names of the compilers, those of higher priority first.
        include_non_call_ops: Annotate tuples and references too, so that regions reach over them.
    """
    names = [targets] if isinstance(targets, str) else list(targets)

    def run(function: Function) -> Expr:
        if {"Composite", "Compiler"} & set(function.attrs or {}):
            return function
        return _Annotator(names, include_non_call_ops).annotated(function)

    return expr_pass("AnnotateTarget", 0, run)


class _Annotator:
    """One walk over a function.

    Attributes:
        target_of: The compilers of new expressions that have one.
    """

    def __init__(self, targets: Sequence[str], compounds: bool) -> None:
        self.targets, self.compounds = targets, compounds
        self.memo: dict[int, Expr] = {}
        self.target_of: dict[Expr, str] = {}

    def annotated(self, function: Function) -> Expr:
        for node in post_order(function, lambda n: not _is_composite(n)):
            self.memo[id(node)] = node if _is_composite(node) else self._node(node)
        return self.memo[id(function)]

    def _node(self, node: Expr) -> Expr:
        new = rebuild(node, self.memo)
        found = annotation(node)
        if found is not None:
            assert isinstance(new, Call)
            return new.args[0] if found[0] == BEGIN else self._ended(new.args[0], found[1])
        if isinstance(node, Call) and isinstance(new, Call):
            if isinstance(node.op, (ast.Var, ast.GlobalVar)) and not self.compounds:
                return Call(new.op, [self._end(a) for a in new.args], new.attrs, new.type_args)
            target = self._supporting(node)
            args = self._begun(new.args, target)
            return self._known(Call(new.op, args, new.attrs, span=new.span), target)
        if isinstance(node, _Compound):
            parts = children(new)
            if not self.compounds:
                return self._with(new, [self._end(p) for p in parts])
            target = self._common(parts)
            return self._known(self._with(new, self._begun(parts, target)), target)
        if isinstance(new, Function):
            return self._with(new, [*new.params, self._end(new.body)])
        if isinstance(new, ast.Let):
            return self._with(new, [new.var, self._end(new.value), self._end(new.body)])
        if isinstance(new, ast.If):
            return self._with(new, [self._end(p) for p in children(new)])
        return new

    @staticmethod
    def _with(node: Expr, parts: Sequence[Expr]) -> Expr:
        return rebuild(node, dict(zip(map(id, children(node)), parts, strict=True)))

    def _known(self, expr: Expr, target: str) -> Expr:
        self.target_of[expr] = target
        return expr

    def _supporting(self, call: Call) -> str:
        """Return the compiler that takes a call: that of an earlier run, else the first one."""
        first = annotation(call.args[0]) if call.args else None
        if first is not None and first[0] == BEGIN and first[1] != DEFAULT:
            return first[1]
        if isinstance(call.op, Op):
            for target in self.targets:
                check = call.op.get_attr(f"target.{target}")
                if check is not None and check(call):
                    return target
        elif isinstance(call.op, Function):
            name, dot, _ = str((call.op.attrs or {}).get("Composite", "")).partition(".")
            if dot and name in self.targets:
                return name
        return DEFAULT

    def _common(self, parts: Sequence[Expr]) -> str:
        """Return the compiler that all parts have."""
        found = {self._target(p) for p in parts}
        return found.pop() if len(found) == 1 else DEFAULT

    def _target(self, expr: Expr) -> str:
        end = annotation(expr)
        return end[1] if end else self.target_of.get(expr, DEFAULT)

    def _begun(self, parts: Sequence[Expr], target: str) -> list[Expr]:
        """Close parts that have a compiler and open a region of `target` on each."""
        return [op_call(BEGIN, [self._end(part)], compiler=target) for part in parts]

    def _ended(self, expr: Expr, before: str) -> Expr:
        """Renew a compiler_end of an earlier run."""
        return op_call(END, [expr], compiler=self.target_of.setdefault(expr, before))

    def _end(self, expr: Expr) -> Expr:
        """Close a part that has a compiler, unless it has no inputs."""
        parts = children(expr)[1:] if isinstance(expr, Call) else children(expr)
        if expr not in self.target_of or not parts:
            return expr
        return op_call(END, [expr], compiler=self.target_of[expr])


def _is_composite(node: Expr) -> bool:
    attrs = node.attrs or {} if isinstance(node, Function) else {}
    return bool({"Composite", "Compiler", "Primitive"} & set(attrs))
