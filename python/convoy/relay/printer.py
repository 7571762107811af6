"""Printing of Relay text that `relay.parse`, and TVM 0.18's parser, read back.

Every computed value gets a number, `%0 = nn.conv2d(...)`, counted over the whole module, except
the last one of a block that nothing else uses. Attributes are printed where they differ from
their defaults, in the order of their class. Values that text cannot hold (tensors that are no
scalars, attributes of an unexpected class, boxed integers) go into the metadata section.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from convoy.errors import RelayTypeError
from convoy.relay import adt, ast
from convoy.relay import types as ty
from convoy.relay.ast import Expr, Function, Var
from convoy.relay.json_format import save_metadata
from convoy.relay.module import IRModule
from convoy.relay.print_hook import register_printer
from convoy.relay.print_values import ValuePrinter
from convoy.relay.trampoline import Step, run
from convoy.relay.visit import children, free_vars, post_order

VERSION_LINE = '#[version = "0.0.5"]\n'
# Indentation makes the text grow with the square of the depth.
_MAX_INDENT = 500
# What the reader takes for a name: dots, colons and slashes included, with which TVM 0.18 prints
# names of PyTorch and ONNX as well, though it does not read them.
_NAME = re.compile(r"[A-Za-z](?:\w|/(?=[\w/]))*(?:(?:\.|::)[\w/]*\w)*", re.ASCII)
_ALWAYS_INLINE = (ast.GlobalVar, ast.Constant, ast.Op, Var, adt.Constructor)


@register_printer
def astext(node: IRModule | Expr, show_meta_data: bool = True) -> str:
    """Print a module or an expression.

    Args:
        node: The module or expression.
        show_meta_data: Append the metadata section. Without it text with `meta[...]` in it cannot
            be read back.

    Raises:
        RelayTypeError: Neither a module nor an expression, or code nested too deep for text.
    """
    if not isinstance(node, (IRModule, Expr)):
        raise RelayTypeError(f"a {type(node).__name__}", "a module or an expression")
    printer = _Printer()
    body = printer.module(node) if isinstance(node, IRModule) else printer.lone(node)
    text = VERSION_LINE + body
    if show_meta_data and printer.values.meta:
        text = text.rstrip("\n") + "\n\n#[metadata]\n" + save_metadata(printer.values.meta)
    return text


def pretty_print(node: object) -> str:
    """Print a module or an expression without version and metadata; anything else as `str`."""
    if not isinstance(node, (IRModule, Expr)):
        return str(node)
    return astext(node, False).removeprefix(VERSION_LINE)


@dataclass
class _Block:
    """The lines of one `{ ... }` so far."""

    indent: int
    lines: list[str] = field(default_factory=list)

    def add(self, line: str) -> None:
        """Append a line."""
        self.lines.append("  " * self.indent + line)


class _Printer:
    def __init__(self) -> None:
        self.memo: dict[int, str] = {}
        self.values = ValuePrinter()
        self.names: dict[str, int] = {}
        self.globals: dict[str, str] = {}
        self.count = 0
        self.uses: dict[int, int] = {}

    # ---- whole texts

    def module(self, mod: IRModule) -> str:
        """Print all functions of a module."""
        parts = [_definition(data) for data in mod.type_definitions.values()]
        for name in sorted(mod):
            function = mod[name]
            self._count_uses(function)
            parts.append(run(self._function(f"def {self._global(name)}", function, 0)) + "\n")
        return "\n".join(parts)

    def lone(self, expr: Expr) -> str:
        """Print one expression, its free variables first."""
        self._count_uses(expr)
        block = _Block(0)
        for var in free_vars(expr):
            block.add(f"free_var {self._declare(var)};")
        if isinstance(expr, Function):
            block.add(run(self._function("fn ", expr, 0)))
        else:
            run(self._scope(expr, block))
        return "\n".join(block.lines)

    def _count_uses(self, expr: Expr) -> None:
        """Count how often each expression is used by another one."""
        self.uses = {}
        for node in post_order(expr):
            for child in children(node):
                self.uses[id(child)] = self.uses.get(id(child), 0) + 1

    # ---- names

    def _unique(self, name: str) -> str:
        """Return the name, with a number appended if it was given before."""
        result = name
        if name in self.names:
            while result in self.names:
                self.names[name] += 1
                result = f"{name}{self.names[name]}"
        self.names[result] = 0
        return result

    def _global(self, name: str) -> str:
        """Return `@name` of a function of the module."""
        if name not in self.globals:
            plain = _readable(name)
            while plain in self.globals.values():
                plain += "_"
            self.globals[name] = plain
        return f"@{self.globals[name]}"

    def _declare(self, var: Var) -> str:
        """Return `%name: type`, for the place where a variable is introduced."""
        name = "%" + self._unique(_readable(var.name_hint))
        self.memo[id(var)] = name
        annotation = var.type_annotation
        if annotation is None or isinstance(annotation, ty.IncompleteType):
            annotation = var.checked_type_
        text = name if annotation is None else f"{name}: {self.values.type(annotation)}"
        return text + self._type_comment(var)

    @staticmethod
    def _type_comment(node: Expr) -> str:
        shown = (ast.Call, ast.Constant, ast.Tuple, ast.TupleGetItem, Var, Function)
        if not isinstance(node, shown):
            return ""
        parts = [] if node.checked_type_ is None else [f"ty={node.checked_type_}"]
        if node.span is not None and node.span.source is None:  # of a text there is the place
            parts.append(f"span={node.span}")
        return f" /* {' '.join(parts)} */" if parts else ""

    # ---- functions and blocks

    def _function(self, head: str, function: Function, indent: int) -> Step:
        type_params = ""
        if function.type_params:
            type_params = f"[{', '.join(map(str, function.type_params))}]"
        items = [self._declare(p) for p in function.params]
        # TVM's reader knows the first attribute by a name without dots.
        attrs = sorted((function.attrs or {}).items(), key=lambda item: "." in item[0])
        items += [f"{k}={self.values.value(v)}" for k, v in attrs]
        ret = function.ret_type
        if ret is None and isinstance(function.checked_type_, ty.FuncType):
            ret = function.checked_type_.ret_type
        arrow = "" if ret is None else f"-> {self.values.type(ret)} "
        body = yield self._braces(function.body, indent)
        return f"{head}{type_params}({', '.join(items)}) {arrow}{body}"

    def _braces(self, body: Expr, indent: int) -> Step:
        if indent >= _MAX_INDENT:
            raise RelayTypeError(
                f"blocks nested over {_MAX_INDENT} deep", "code that can be printed"
            )
        block = _Block(indent + 1)
        yield self._scope(body, block)
        return "\n".join(["{", *block.lines, "  " * indent + "}"])

    def _scope(self, expr: Expr, block: _Block) -> Step:
        """Print the lines of an expression, the last one its value."""
        while isinstance(expr, ast.Let) and self._is_unique(expr):
            yield self._let(expr, block)
            expr = expr.body
        value = yield self._print(expr, block, inline=True)
        block.add(value)

    def _let(self, let: ast.Let, block: _Block) -> Step:
        declared = self._declare(let.var)
        value = yield self._print(let.value, block, inline=True)
        block.add(f"let {declared} = {value};")

    def _is_unique(self, expr: Expr) -> bool:
        return self.uses.get(id(expr), 0) <= 1

    # ---- expressions

    def _print(self, expr: Expr, block: _Block, inline: bool = False) -> Step:
        """Return the reference to an expression; print its own line first where it needs one."""
        if id(expr) in self.memo:
            return self.memo[id(expr)]
        inline = isinstance(expr, _ALWAYS_INLINE) or (inline and self._is_unique(expr))
        # As in TVM: every computed value inside gets its number when the first one that uses it
        # is reached in evaluation order; `(relu(a), relu(b))` numbers a, b, then both relus.
        for inner in self._dataflow(expr):
            for operand in _operands(inner):
                yield self._print(operand, block)
        text = yield self._visit(expr, block)
        text += self._type_comment(expr)
        if inline:
            self.memo[id(expr)] = text
            return text
        name = f"%{self.count}"
        self.count += 1
        self.memo[id(expr)] = name
        block.add(f"{name} = {text};")
        return name

    def _dataflow(self, root: Expr) -> list[Expr]:
        """Return the unprinted calls, tuples and projections inside, in evaluation order."""
        order: list[Expr] = []
        seen: set[int] = set()
        stack: list[tuple[Expr, bool]] = [(root, False)]
        while stack:
            node, expanded = stack.pop()
            if expanded:
                order.append(node)
            elif id(node) not in seen and id(node) not in self.memo and _operands(node):
                seen.add(id(node))
                stack.append((node, True))
                stack.extend((o, False) for o in reversed(_operands(node)))
        return order

    def _visit(self, expr: Expr, block: _Block) -> Any:
        if isinstance(expr, ast.Call):
            return self._call(expr, block)
        if isinstance(expr, ast.Tuple):
            return self._tuple(expr, block)
        if isinstance(expr, ast.TupleGetItem):
            return self._projection(expr, block)
        if isinstance(expr, Function):
            return self._function("fn ", expr, block.indent)
        if isinstance(expr, ast.If):
            return self._if(expr, block)
        if isinstance(expr, ast.Let):
            return self._nested_let(expr, block)
        if isinstance(expr, ast.Constant):
            return self.values.constant(expr)
        if isinstance(expr, ast.Op):
            return expr.name
        if isinstance(expr, ast.GlobalVar):
            return self._global(expr.name_hint)
        if isinstance(expr, adt.Constructor):
            return expr.name_hint
        if isinstance(expr, adt.Match):
            return self._match(expr, block)
        if isinstance(expr, (adt.RefCreate, adt.RefRead, adt.RefWrite)):
            return self._reference(expr, block)
        assert isinstance(expr, Var)  # outside of what declares it, if anything does
        block.add(f"free_var {self._declare(expr)};")
        return self.memo[id(expr)]

    def _call(self, call: ast.Call, block: _Block) -> Step:
        items = []
        for arg in call.args:
            items.append((yield self._print(arg, block)))
        items += self.values.attrs(call)
        callee = yield self._print(call.op, block)
        if isinstance(call.op, adt.Constructor) and not items:
            return callee
        return f"{callee}({', '.join(items)})"

    def _tuple(self, expr: ast.Tuple, block: _Block) -> Step:
        fields = []
        for item in expr.fields:
            fields.append((yield self._print(item, block)))
        return f"({fields[0]},)" if len(fields) == 1 else f"({', '.join(fields)})"

    def _projection(self, expr: ast.TupleGetItem, block: _Block) -> Step:
        value = yield self._print(expr.tuple_value, block)
        return f"{value}.{expr.index}"

    def _if(self, expr: ast.If, block: _Block) -> Step:
        cond = yield self._print(expr.cond, block)
        true = yield self._braces(expr.true_branch, block.indent)
        false = yield self._braces(expr.false_branch, block.indent)
        return f"if ({cond}) {true} else {false}"

    def _match(self, expr: adt.Match, block: _Block) -> Step:
        data = yield self._print(expr.data, block)
        margin = "  " * (block.indent + 1)
        lines = []
        for clause in expr.clauses:
            pattern = self._pattern(clause.lhs)
            body = yield self._braces(clause.rhs, block.indent + 1)
            lines.append(f"{margin}{pattern} => {body},")
        keyword = "match" if expr.complete else "match?"
        return "\n".join([f"{keyword} ({data}) {{", *lines, "  " * block.indent + "}"])

    def _pattern(self, pattern: adt.Pattern) -> str:
        if isinstance(pattern, adt.PatternVar):
            name = self.memo[id(pattern.var)] = "%" + self._unique(_readable(pattern.var.name_hint))
            return name
        if isinstance(pattern, adt.PatternTuple):
            return f"({', '.join(map(self._pattern, pattern.patterns))})"
        if isinstance(pattern, adt.PatternConstructor):
            inner = ", ".join(map(self._pattern, pattern.patterns))
            return pattern.constructor.name_hint + (f"({inner})" if inner else "")
        return "_"

    def _reference(self, expr: adt.RefCreate | adt.RefRead | adt.RefWrite, block: _Block) -> Step:
        keyword = {adt.RefCreate: "ref", adt.RefRead: "ref_read", adt.RefWrite: "ref_write"}
        parts = []
        for part in children(expr):
            parts.append((yield self._print(part, block)))
        return f"{keyword[type(expr)]}({', '.join(parts)})"

    def _nested_let(self, expr: ast.Let, block: _Block) -> Step:
        """Print a let that is an operand, in brackets."""
        if block.indent >= _MAX_INDENT:
            raise RelayTypeError(f"lets nested over {_MAX_INDENT} deep", "code that can be printed")
        inner = _Block(block.indent + 1)
        node: Expr = expr
        while isinstance(node, ast.Let) and (node is expr or self._is_unique(node)):
            yield self._let(node, inner)
            node = node.body
        value = yield self._print(node, inner, inline=True)
        inner.add(value)
        return "\n".join(["(", *inner.lines, "  " * block.indent + ")"])


def _definition(data: adt.TypeData) -> str:
    """Print the definition of a data type."""
    params = f"[{', '.join(map(str, data.type_vars))}]" if data.type_vars else ""
    lines = [f"type {data.header}{params} {{"]
    for constructor in data.constructors:
        fields = ", ".join(map(str, constructor.inputs))
        lines.append(f"  {constructor.name_hint}" + (f"({fields})," if fields else ","))
    return "\n".join([*lines, "}"]) + "\n"


def _readable(name: str) -> str:
    """Return a name that can be read back, with other characters replaced by `_`."""
    if not name[:1].isalpha() or not name.isascii():
        name = "v" + name
    return name if _NAME.fullmatch(name) else re.sub(r"\W", "_", name, flags=re.ASCII)


def _operands(node: Expr) -> Sequence[Expr]:
    """Return the operands of a call, a tuple or a projection; nothing for other nodes."""
    if isinstance(node, ast.Call):
        return node.args
    if isinstance(node, ast.Tuple):
        return node.fields
    return (node.tuple_value,) if isinstance(node, ast.TupleGetItem) else ()


_COMMENT = re.compile(r" ?/\*.*?\*/")


def without_comments(text: str) -> str:
    """Remove the types from printed text."""
    return _COMMENT.sub("", text)
