"""Type inference of programs with data types, references and functions as values.

Types have holes that are filled from both sides (`holes`). Operators wait until the types of their
arguments are known, and then run their type rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from convoy.errors import ConvoyError, RelayTypeError, UnsupportedOp
from convoy.relay import adt, ast
from convoy.relay.ast import Expr, Function, GlobalVar, Var
from convoy.relay.cases import unmatched_cases
from convoy.relay.diagnostics import error_at, place
from convoy.relay.infer.holes import (
    Hole,
    instantiated,
    is_known,
    resolved,
    shallow,
    unify,
    with_holes,
)
from convoy.relay.module import IRModule
from convoy.relay.ops import OPERATORS
from convoy.relay.ops.type_inputs import Inputs, Undetermined
from convoy.relay.types import FuncType, RefType, TensorType, TupleType, Type, TypeCall
from convoy.relay.visit import post_order

NODES = (adt.Match, adt.Constructor, adt.RefCreate, adt.RefRead, adt.RefWrite)
# Solves what a node leaves open; returns False while it has to wait.
_Waiting = tuple[Expr, Callable[[], bool]]


def declared_type(mod: IRModule, node: GlobalVar) -> FuncType | None:
    """Return the type that is written for a function; outside its module the one inferred there.

    Raises:
        RelayTypeError: There is no such function.
    """
    if node.name_hint not in mod and isinstance(node.checked_type_, FuncType):
        return node.checked_type_
    return mod[node.name_hint].func_type_annotation


class Unifying:
    """Inference of one expression.

    Args:
        mod: The module, for its data types and functions.
        globals_: The types of its functions that are known already.
    """

    def __init__(self, mod: IRModule, globals_: Mapping[str, Type]) -> None:
        self.mod, self.globals = mod, globals_
        self.types: dict[int, Type] = {}
        self._nodes: list[Expr] = []  # whose ids are keys
        self._waiting: list[_Waiting] = []
        self._own: dict[str, Type] = {}

    def solve(self, expr: Expr, name: str = "") -> dict[int, Type]:
        """Return the types of all nodes by their ids.

        Args:
            expr: The expression.
            name: The function's name in the module, which it may call itself by.

        Raises:
            RelayTypeError: Types that do not fit, or operators whose arguments have no type.
        """
        if name and isinstance(expr, Function):
            self._own[name] = self._signature(expr)
        for node in post_order(expr):
            try:
                unify(self.type(node), self._infer(node))
            except ConvoyError as error:
                raise place(error, node.span) from None
        self._settle()
        found = {key: resolved(t) for key, t in self.types.items()}
        for node in post_order(expr):
            if isinstance(node, adt.Match):
                self._check_complete(node)
        return found

    def _check_complete(self, node: adt.Match) -> None:
        missing = unmatched_cases(node, self.mod) if node.complete else []
        if missing:
            raise error_at(
                RelayTypeError,
                f"a match without a clause for {show(missing[0])}",
                node.span,
                "clauses for all values",
                "Add it, or write match? (complete=False)",
            )

    def type(self, node: Expr) -> Type:
        """Return the type of a node, a hole at first; that of a variable as it is written."""
        found = self.types.get(id(node))
        if found is None:
            found = with_holes(node.type_annotation) if isinstance(node, Var) else Hole()
            self.types[id(node)] = found
            self._nodes.append(node)
        return found

    def _signature(self, function: Function) -> FuncType:
        params = [self.type(p) for p in function.params]
        return FuncType(params, with_holes(function.ret_type), function.type_params)  # type: ignore[arg-type]

    def _settle(self) -> None:
        """Solve what waits, until nothing changes."""
        while self._waiting:
            left: list[_Waiting] = []
            for node, attempt in self._waiting:
                try:
                    if not attempt():
                        left.append((node, attempt))
                except ConvoyError as error:
                    raise place(error, node.span) from None
            if len(left) == len(self._waiting):
                node = left[0][0]
                raise error_at(
                    RelayTypeError,
                    f"the type of a {type(node).__name__} cannot be inferred",
                    node.span,
                    remedy="Write the types of the function's parameters and of its result",
                )
            self._waiting = left

    # ---- nodes

    def _infer(self, node: Expr) -> Type:
        if isinstance(node, ast.Constant):
            return node.tensor_type
        if isinstance(node, ast.Tuple):
            return TupleType([self.type(f) for f in node.fields])
        if isinstance(node, ast.Let):
            unify(self.type(node.value), self.type(node.var))
            if isinstance(node.value, Function) and node.value.type_params:
                self.types[id(node.var)] = self.type(node.value)
            return self.type(node.body)
        if isinstance(node, ast.If):
            return self._if(node)
        if isinstance(node, Function):
            return self._function(node)
        if isinstance(node, GlobalVar):
            return self._global(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.TupleGetItem):
            return self._projection(node)
        if isinstance(node, adt.Constructor):
            return self.constructor(node)
        if isinstance(node, adt.Match):
            return self._match(node)
        if isinstance(node, adt.RefCreate):
            return RefType(self.type(node.value))
        if isinstance(node, adt.RefRead):
            inner = Hole()
            unify(self.type(node.ref), RefType(inner))
            return inner
        if isinstance(node, adt.RefWrite):
            unify(self.type(node.ref), RefType(self.type(node.value)))
            return TupleType(())
        return self.type(node)  # a variable, or an operator as a value

    def _if(self, node: ast.If) -> Type:
        cond = shallow(self.type(node.cond))
        if isinstance(node.cond, Var) and isinstance(cond, Hole):
            unify(cond, TensorType((), "bool"))
        if isinstance(cond, TensorType) and (cond.shape or cond.dtype not in ("bool", "uint1")):
            raise RelayTypeError(f"a condition of type {cond}", "a scalar bool")
        unify(self.type(node.true_branch), self.type(node.false_branch))
        return self.type(node.true_branch)

    def _function(self, node: Function) -> Type:
        found = next((t for n, t in self._own.items() if self.mod[n] is node), None)
        signature = self._signature(node) if found is None else found
        assert isinstance(signature, FuncType)
        unify(self.type(node.body), signature.ret_type)
        self.types[id(node)] = signature  # as it is: unification would instantiate it
        return signature

    def _global(self, node: GlobalVar) -> Type:
        name = node.name_hint
        found = self.globals.get(name) or self._own.get(name)
        if found is None:
            found = declared_type(self.mod, node)
        if found is None:
            raise RelayTypeError(
                f"@{name}, which is called before its type is known",
                remedy="Write the types of its parameters and of its result",
            )
        self.types[id(node)] = found
        return found

    def constructor(self, node: adt.Constructor) -> Type:
        """Return the type of a constructor as a function."""
        data = self.mod[node.belong_to]
        result = TypeCall(node.belong_to, data.type_vars)
        found = FuncType(node.inputs, result, data.type_vars)
        self.types[id(node)] = found
        return found

    def _projection(self, node: ast.TupleGetItem) -> Type:
        result = Hole()

        def attempt() -> bool:
            whole = shallow(self.type(node.tuple_value))
            if isinstance(whole, Hole):
                return False
            if not isinstance(whole, TupleType) or not 0 <= node.index < len(whole.fields):
                raise RelayTypeError(f"field {node.index} of {resolved(whole)}", "a tuple with it")
            unify(result, whole.fields[node.index])
            return True

        if not attempt():
            self._waiting.append((node, attempt))
        return result

    def _call(self, node: ast.Call) -> Type:
        if isinstance(node.op, ast.Op):
            return self._operator(node, node.op)
        args = [self.type(a) for a in node.args]
        callee = instantiated(self.type(node.op))
        if isinstance(callee, FuncType) and len(callee.arg_types) != len(args):
            raise RelayTypeError(f"{len(args)} arguments", str(len(callee.arg_types)))
        result = Hole()
        unify(FuncType(args, result), callee)
        return result

    def _operator(self, node: ast.Call, op: ast.Op) -> Type:
        operator = OPERATORS.get(op.name)
        rule = None if operator is None else operator.type_rule
        if rule is None:
            raise UnsupportedOp(f"{op.name} is a Relay operator that convoy does not support")
        if op.name.startswith("annotation.compiler_") and len(node.args) == 1:
            return self.type(node.args[0])  # a value of any type, which may become known behind it
        result = Hole()

        def attempt() -> bool:
            types = [self.type(a) for a in node.args]
            inputs = Inputs(node, [resolved(t) if is_known(t) else None for t in types])
            try:
                found = rule(inputs)
            except Undetermined:
                return False
            unify(result, found)
            for index, wanted in inputs.assigned.items():
                unify(types[index], wanted)
            return True

        if not attempt():
            self._waiting.append((node, attempt))
        return result

    # ---- match

    def _match(self, node: adt.Match) -> Type:
        result = Hole()
        for clause in node.clauses:
            unify(self.type(node.data), self._pattern(clause.lhs))
            unify(self.type(clause.rhs), result)
        return result

    def _pattern(self, pattern: adt.Pattern) -> Type:
        if isinstance(pattern, adt.PatternVar):
            return self.type(pattern.var)
        if isinstance(pattern, adt.PatternTuple):
            return TupleType([self._pattern(p) for p in pattern.patterns])
        if not isinstance(pattern, adt.PatternConstructor):
            return Hole()
        found = instantiated(self.constructor(pattern.constructor))
        assert isinstance(found, FuncType)
        if pattern.patterns and len(pattern.patterns) != len(found.arg_types):
            name = pattern.constructor.name_hint
            got = f"{name} with {len(pattern.patterns)} fields"
            raise RelayTypeError(got, str(len(found.arg_types)))
        for part, field in zip(pattern.patterns, found.arg_types, strict=False):
            unify(field, self._pattern(part))
        return found.ret_type


def show(pattern: adt.Pattern) -> str:
    """Print a pattern."""
    if isinstance(pattern, adt.PatternVar):
        return f"%{pattern.var.name_hint}"
    if isinstance(pattern, adt.PatternWildcard):
        return "_"
    assert isinstance(pattern, (adt.PatternConstructor, adt.PatternTuple))
    inner = ", ".join(map(show, pattern.patterns))
    if isinstance(pattern, adt.PatternTuple):
        return f"({inner})"
    return pattern.constructor.name_hint + (f"({inner})" if inner else "")


def is_special(expr: Expr) -> bool:
    """Check for expressions that only this inference knows."""
    for node in post_order(expr):
        if isinstance(node, NODES):
            return True
        written = node.type_annotation if isinstance(node, Var) else None
        if isinstance(node, Function) and (node.type_params or node.ret_type is not None):
            written = node.ret_type
            if node.type_params:
                return True
        if isinstance(written, (TypeCall, RefType, FuncType)):
            return True
        value = node.value if isinstance(node, ast.Let) else None
        if isinstance(value, Function) and value.func_type_annotation is None:
            assert isinstance(node, ast.Let)
            if node.var in set(post_order(value)):
                return True
    return False
