"""Syntax trees to expressions: scopes, sharing, literals, attributes and metadata."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
from lark import Token

from convoy.errors import ConvoyError, RelaySyntaxError, UnsupportedOp
from convoy.relay import adt, ast
from convoy.relay.ast import Call, Constant, Expr, Function, GlobalVar, Var
from convoy.relay.attrs import Attrs, complete_attrs, make_attrs
from convoy.relay.diagnostics import error_at, place
from convoy.relay.module import IRModule
from convoy.relay.schema import attrs_class
from convoy.relay.source import Source, Span, nearest
from convoy.relay.text.data_types import DataTypes
from convoy.relay.text.literals import as_constant
from convoy.relay.text.reader import VERSION, TextReader, is_rule
from convoy.relay.text.scope import Scopes
from convoy.relay.text.types import Syntax, TypeElaborator
from convoy.relay.trampoline import Step, run
from convoy.relay.types import Type

_BINARY = {
    "*": "multiply",
    "/": "divide",
    "+": "add",
    "-": "subtract",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
    "==": "equal",
    "!=": "not_equal",
}


class Elaborator(TextReader):
    """Elaborate the syntax tree of one module or expression.

    Args:
        source: The text, for places in errors.
        init_module: Functions that the text may call besides its own.
        meta_table: The objects of `meta[key][n]`, for text without a metadata section.
    """

    def __init__(
        self, source: Source, init_module: IRModule | None, meta_table: dict[str, Any] | None
    ) -> None:
        super().__init__(source, meta_table)
        self.init_module = init_module
        self.scopes = Scopes()
        self.types = TypeElaborator(self.span, self.meta_object)
        self.data_types = DataTypes(self.types, self.error)
        # `%0` stands for the expression itself. The first binding of a number wins; numbers are
        # those of one definition (TVM keeps them for the whole file, which differs only for
        # files that use a number twice, and those TVM reads wrongly).
        self.graph: dict[str, Expr] = {}
        self.globals: dict[str, GlobalVar] = {}

    # ---- whole texts

    def module(self, tree: Syntax) -> IRModule:
        """Elaborate a whole text."""
        children = list(tree.children)
        if not children or not is_rule(children[0], "version"):
            raise error_at(
                RelaySyntaxError,
                "Relay text without a version",
                Span(self.source.name, 1, column=1, source=self.source),
                f'#[version = "{VERSION}"] in front',
            )
        self.check_version(children.pop(0))
        self.read_metadata(children)
        mod = self.init_module.shallow_copy() if self.init_module else IRModule()
        for var in mod.get_global_vars():
            self.globals[var.name_hint] = var
        self.data_types.read(mod, [c for c in children if is_rule(c, "type_definition")])
        for definition in children:
            if is_rule(definition, "type_definition"):
                continue
            name, function = definition.children
            self.graph = {}
            mod[self._global(name)] = run(self.function(function, name))
        for name, (var, span) in self._called.items():
            if var not in mod:
                raise error_at(
                    RelaySyntaxError,
                    f"@{name} is not defined",
                    span,
                    remedy=nearest(name, list(mod)),
                )
        return mod

    def lone_expr(self, tree: Syntax) -> Expr:
        """Elaborate the text of one expression."""
        children = list(tree.children)
        if children and is_rule(children[0], "version"):
            self.check_version(children.pop(0))
        self.read_metadata(children)
        return run(self.expr(children[0]))

    # ---- names

    @property
    def _called(self) -> dict[str, tuple[GlobalVar, Span]]:
        return {n: (v, v.span) for n, v in self.globals.items() if v.span is not None}

    def _global(self, token: Token, called: bool = False) -> GlobalVar:
        name = str(token)[1:]
        if name not in self.globals:
            self.globals[name] = GlobalVar(name, span=self.span(token) if called else None)
        return self.globals[name]

    # ---- functions and bindings

    def function(self, tree: Syntax, at: Token) -> Step:
        """Elaborate a function; `at` is its place."""
        *head, body = tree.children
        self.scopes.push()
        type_params: list[Type] = []
        if head and is_rule(head[0], "type_params"):
            type_params = [self.types.declare(str(name)) for name in head.pop(0).children]
        params: list[Var] = []
        attrs: dict[str, Any] = {}
        ret_type = None
        for item in head:
            if is_rule(item, "param"):
                if attrs:
                    raise self.error(item, "a parameter behind attributes", "parameters first")
                params.append(self._param(item))
            elif is_rule(item, "attr"):
                attrs[str(item.children[0])] = self.attribute(item.children[1])
            else:
                ret_type = self.types.elaborate(item)
        value = yield self.expr(body)
        self.scopes.pop()
        for name in type_params:
            self.types.forget(str(name))
        return Function(params, value, ret_type, type_params, attrs, span=self.span(at))

    def _param(self, tree: Syntax) -> Var:
        name, annotation = self._name_and_type(tree)
        var = Var(name, annotation, span=self.span(tree))
        self.scopes.bind(name, var)
        return var

    def _name_and_type(self, tree: Syntax) -> tuple[str, Type | None]:
        """Read `%input.1: T`; names with dots, which TVM does not parse, are accepted."""
        annotation = None
        for child in tree.children[1:]:
            if child.data != "virtual_device":
                annotation = self.types.elaborate(child)
        return str(tree.children[0])[1:], annotation

    def expr(self, tree: Syntax) -> Step:
        """Elaborate bindings and their value; `let` and discarded values nest to the right."""
        lets: list[tuple[Var, Expr, Span]] = []
        pushed, leaves = 0, ""
        for statement in tree.children[:-1]:
            kind, parts = statement.data, statement.children
            if kind == "graph_binding":
                value = yield self.visit(parts[1])
                self.graph.setdefault(str(parts[0]), _named(value, str(parts[0])))
            elif kind == "let_binding":
                name = str(parts[0])[1:]
                annotation = self.types.elaborate(parts[1]) if len(parts) == 3 else None
                var = Var(name, annotation, span=self.span(parts[0]))
                # Bound before its value is read, so that a function may call itself. The first
                # let stands in the scope around it, where a parameter of its name wins; each
                # other one is in a scope of its own.
                if self.scopes.bind(name, var) and not pushed:
                    leaves = name
                value = yield self.visit(parts[-1])
                lets.append((var, _named(value, str(parts[0])), self.span(statement)))
                self.scopes.push()
                pushed += 1
            elif kind == "free_var":
                name, annotation = self._name_and_type(statement)
                var = Var(name, annotation, span=self.span(statement))
                self.scopes.bind(name, var)
            else:
                value = yield self.visit(parts[0])
                lets.append((Var(""), value, self.span(statement)))
        body = yield self.visit(tree.children[-1])
        for _ in range(pushed):
            self.scopes.pop()
        if leaves:
            self.scopes.unbind(leaves)
        for var, value, span in reversed(lets):
            body = ast.Let(var, value, body, span=span)
        return body

    # ---- expressions

    def visit(self, tree: Syntax) -> Any:
        """Elaborate an expression by its rule's method."""
        return getattr(self, f"on_{tree.data}")(tree)

    def on_block(self, tree: Syntax) -> Step:
        self.scopes.push()
        value = yield self.expr(tree.children[0])
        self.scopes.pop()
        return value

    def on_paren(self, tree: Syntax) -> Step:
        return self.expr(tree.children[1])

    def on_expr(self, tree: Syntax) -> Step:
        return self.expr(tree)

    def _operator(self, tree: Syntax) -> Step:
        left, operator, right = tree.children
        lhs = yield self.visit(left)
        rhs = yield self.visit(right)
        span = self.span(tree)
        return Call(ast.op(_BINARY[str(operator)]), (lhs, rhs), span=span)

    on_equality = on_comparison = on_sum = on_product = _operator

    def on_call(self, tree: Syntax) -> Step:
        head, *items = tree.children
        callee = yield self.visit(head)
        if is_rule(head, "name") and isinstance(callee, Call):
            callee = callee.op  # `Nil()`
        args: list[Expr] = []
        given: dict[str, Any] = {}
        attrs: Attrs | None = None
        for item in items:
            if is_rule(item, "attr"):
                name = str(item.children[0])
                if name in given:
                    raise self.error(item, f"attribute '{name}' twice", "once")
                given[name] = self.attribute(item.children[1])
                continue
            if given:
                raise self.error(item, "an argument behind attributes", "arguments first")
            value = yield self.visit(item)
            if isinstance(value, Attrs):
                attrs = value
            elif isinstance(value, Expr):
                args.append(value)
            else:
                raise self.error(item, f"a {type(value).__name__} as argument", "an expression")
        span = self.span(tree)
        if attrs is None:
            attrs = self._attrs(callee, given, span)
        elif given:
            raise self.error(tree, "attributes both from the metadata and by name", "one of them")
        return Call(callee, args, attrs, span=span)

    def _attrs(self, callee: Expr, given: dict[str, Any], span: Span) -> Attrs | None:
        try:
            if isinstance(callee, ast.Op):
                return make_attrs(callee.name, given)
            if not given:
                return None
            key = given.pop("attrs_type_key", "DictAttrs")
            cls = attrs_class(str(key))
            return complete_attrs(cls, given, str(key)) if cls else Attrs(None, given)
        except ConvoyError as error:
            raise place(error, span) from None

    def on_projection(self, tree: Syntax) -> Step:
        inner, token = tree.children
        if not token.isdigit() or len(token) > 9:
            raise self._no_field(token, f".{token}")
        value = yield self.visit(inner)
        return ast.TupleGetItem(value, int(token), span=self.span(tree))

    def _no_field(self, at: Any, got: str) -> ConvoyError:
        remedy = "A field of a field is written (%0.0).1"
        return self.error(at, f"'{got}'", "a field number, such as %0.1", remedy)

    def on_number(self, tree: Syntax) -> Constant:
        value, dtype = self.number(tree)
        return Constant(as_constant(value, dtype), span=self.span(tree))

    def on_bool(self, tree: Syntax) -> Constant:
        return Constant(np.array(tree.children[0] == "True"), span=self.span(tree))

    def on_string(self, tree: Syntax) -> Expr:
        raise self.error(tree, "a string as a value", "an expression")

    def on_local(self, tree: Syntax) -> Expr:
        name = str(tree.children[0])[1:]
        var = self.scopes.find(name)
        if var is not None:
            return var
        owner, dot, field = name.rpartition(".")
        if dot and field.isdigit() and len(field) < 10:
            if (value := self.scopes.find(owner)) is not None:
                return ast.TupleGetItem(value, int(field), span=self.span(tree))
            if self.scopes.find(re.sub(r"\.[0-9]+$", "", owner)) is not None:
                raise self._no_field(tree, f"%{name}")
        raise self.error(
            tree, f"%{name} is not defined here", remedy=nearest(name, self.scopes.names())
        )

    def on_graph(self, tree: Syntax) -> Expr:
        name = str(tree.children[0])
        if name not in self.graph:
            raise self.error(tree, f"{name} is not defined yet", f"{name} = ...; before it is used")
        return self.graph[name]

    def on_global(self, tree: Syntax) -> Expr:
        return self._global(tree.children[0], called=True)

    def on_name(self, tree: Syntax) -> Expr:
        name = str(tree.children[0])
        constructor = self.data_types.constructors.get(name)
        if constructor is not None:  # one without fields is a value
            return constructor if constructor.inputs else Call(constructor, ())
        try:
            return ast.op(name)
        except UnsupportedOp as error:
            raise place(error, self.span(tree)) from None

    def on_meta(self, tree: Syntax) -> Any:
        return self.meta_object(tree.children[0])

    def on_lambda(self, tree: Syntax) -> Step:
        keyword, function = tree.children
        return self.function(function, keyword)

    def on_conditional(self, tree: Syntax) -> Step:
        _, cond, true_branch, false_branch = tree.children
        c = yield self.expr(cond)
        t = yield self.visit(true_branch)
        f = yield self.visit(false_branch)
        return ast.If(c, t, f, span=self.span(tree))

    def on_match(self, tree: Syntax) -> Step:
        keyword, value, *clauses = tree.children
        data = yield self.visit(value)
        found = []
        for clause in clauses:
            lhs, rhs = clause.children
            self.scopes.push()
            pattern = self.data_types.pattern(lhs, self._bind_pattern)
            found.append(adt.Clause(pattern, (yield self.expr(rhs))))
            self.scopes.pop()
        return adt.Match(data, found, not keyword.endswith("?"), span=self.span(tree))

    def _bind_pattern(self, tree: Syntax) -> Var:
        name = str(tree.children[0])[1:]
        declared = self.types.elaborate(tree.children[1]) if len(tree.children) > 1 else None
        var = Var(name, declared, span=self.span(tree))
        self.scopes.bind(name, var)
        return var

    def on_reference(self, tree: Syntax) -> Step:
        keyword, *parts = tree.children
        kind = {"ref": adt.RefCreate, "ref_read": adt.RefRead, "ref_write": adt.RefWrite}[keyword]
        wanted = 2 if kind is adt.RefWrite else 1
        if len(parts) != wanted:
            raise self.error(tree, f"{keyword} of {len(parts)} values", str(wanted))
        values = []
        for part in parts:
            values.append((yield self.expr(part)))
        return kind(*values, span=self.span(tree))

    def on_tuple(self, tree: Syntax) -> Step:
        fields = []
        for child in tree.children[1:]:
            fields.append((yield self.visit(child)))
        return ast.Tuple(fields, span=self.span(tree))


def _named(value: Any, binding: str) -> Any:
    """Remember, for errors, which variable a value is bound to."""
    span = getattr(value, "span", None)
    if span is not None and not span.binding:
        object.__setattr__(value, "span", replace(span, binding=binding))
    return value
