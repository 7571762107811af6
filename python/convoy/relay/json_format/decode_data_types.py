"""Decoders of algebraic data types, matches and references."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from convoy.relay import adt
from convoy.relay import types as ty
from convoy.relay.ast import Expr, Var
from convoy.relay.json_format.decoding import Step, decodes, expect, expect_all, span_of

if TYPE_CHECKING:
    from convoy.relay.json_format.reader import Node


@decodes("GlobalTypeVar")
def global_type_var(node: Node) -> Step:
    name = yield from name_of(node)
    return ty.GlobalTypeVar(name, node.int("kind"))


def name_of(node: Node) -> Step:
    """Return the name of a type variable; in files of TVM 0.6 that of the node `var`."""
    if "name_hint" in node.fields or "var" not in node.fields:
        return node.string("name_hint")
    return expect((yield from node.ref("var")), ty.SymbolicDim, node, "var").name


@decodes("TypeCall")
def type_call(node: Node) -> Step:
    func = expect((yield from node.ref("func")), ty.Type, node, "func")
    return ty.TypeCall(func, expect_all((yield from node.ref("args")), ty.Type, node, "args"))


@decodes("relay.RefType", "RelayRefType", "RefType")
def ref_type(node: Node) -> Step:
    return ty.RefType(expect((yield from node.ref("value")), ty.Type, node, "value"))


@decodes("relay.TypeData", "TypeData")
def type_data(node: Node) -> Step:
    header = expect((yield from node.ref("header")), ty.GlobalTypeVar, node, "header")
    params = expect_all((yield from node.ref("type_vars")), ty.TypeVar, node, "type_vars")
    found = yield from node.ref("constructors")
    return adt.TypeData(header, params, expect_all(found, adt.Constructor, node, "constructors"))


@decodes("relay.Constructor", "Constructor")
def constructor(node: Node) -> Step:
    inputs = expect_all((yield from node.ref("inputs")), ty.Type, node, "inputs")
    header = expect((yield from node.ref("belong_to")), ty.GlobalTypeVar, node, "belong_to")
    return adt.Constructor(node.string("name_hint"), inputs, header, node.int("tag"))


@decodes("relay.Match")
def match(node: Node) -> Step:
    data = expect((yield from node.ref("data")), Expr, node, "data")
    clauses = expect_all((yield from node.ref("clauses")), adt.Clause, node, "clauses")
    complete = bool(node.int("complete"))
    return adt.Match(data, clauses, complete, span=(yield from span_of(node)))


@decodes("relay.Clause")
def clause(node: Node) -> Step:
    lhs = expect((yield from node.ref("lhs")), adt.Pattern, node, "lhs")
    return adt.Clause(lhs, expect((yield from node.ref("rhs")), Expr, node, "rhs"))


@decodes("relay.PatternWildcard")
def wildcard(node: Node) -> Any:
    return adt.PatternWildcard()


@decodes("relay.PatternVar")
def pattern_var(node: Node) -> Step:
    return adt.PatternVar(expect((yield from node.ref("var")), Var, node, "var"))


@decodes("relay.PatternTuple")
def pattern_tuple(node: Node) -> Step:
    found = yield from node.ref("patterns")
    return adt.PatternTuple(expect_all(found, adt.Pattern, node, "patterns"))


@decodes("relay.PatternConstructor")
def pattern_constructor(node: Node) -> Step:
    found = yield from node.ref("constructor")
    found = expect(found, adt.Constructor, node, "constructor")
    patterns = expect_all((yield from node.ref("patterns")), adt.Pattern, node, "patterns")
    return adt.PatternConstructor(found, patterns)


@decodes("relay.RefCreate")
def ref_create(node: Node) -> Step:
    value = expect((yield from node.ref("value")), Expr, node, "value")
    return adt.RefCreate(value, span=(yield from span_of(node)))


@decodes("relay.RefRead")
def ref_read(node: Node) -> Step:
    ref = expect((yield from node.ref("ref")), Expr, node, "ref")
    return adt.RefRead(ref, span=(yield from span_of(node)))


@decodes("relay.RefWrite")
def ref_write(node: Node) -> Step:
    ref = expect((yield from node.ref("ref")), Expr, node, "ref")
    value = expect((yield from node.ref("value")), Expr, node, "value")
    return adt.RefWrite(ref, value, span=(yield from span_of(node)))
