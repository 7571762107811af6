"""Types of the text format."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from lark import Token, Tree

from convoy.errors import RelaySyntaxError, RelayTypeError
from convoy.relay import types as ty
from convoy.relay.diagnostics import error_at
from convoy.relay.source import Span

# lark.Tree; its children are tokens and trees, which a type checker cannot tell apart.
Syntax = Any

_DTYPE = re.compile(r"(?:u?int|bfloat|float|bool|custom)[0-9]*(?:x[0-9]+)?")
# Of 32 bits unless they say otherwise.
_PLAIN = {"int": "int32", "uint": "uint32", "float": "float32"}
# Elaboration recurses; types that nest deeper than this are refused anyway.
_MAX_DEPTH = 100


class TypeElaborator:
    """Elaborate syntax trees of types.

    Args:
        span: Returns the place of a tree or token.
        meta_object: Returns the object of a `meta[...][n]` token.
    """

    def __init__(
        self, span: Callable[[Syntax | Token], Span], meta_object: Callable[[Token], Any]
    ) -> None:
        self._span, self._meta_object = span, meta_object
        self._variables: dict[str, list[ty.TypeVar]] = {}
        # Algebraic data types by name.
        self.data_types: dict[str, ty.GlobalTypeVar] = {}

    def declare(self, name: str) -> ty.TypeVar:
        """Bring a type parameter into scope."""
        var = ty.TypeVar(name)
        self._variables.setdefault(name, []).append(var)
        return var

    def forget(self, name: str) -> None:
        """Take a type parameter out of scope."""
        self._variables[name].pop()

    def elaborate(self, tree: Syntax, depth: int = 0) -> ty.Type:
        """Return the type of a syntax tree."""
        if depth > _MAX_DEPTH:
            raise error_at(
                RelaySyntaxError, f"a type nested over {_MAX_DEPTH} deep", self._span(tree)
            )
        inner = depth + 1
        if tree.data == "tensor_type":
            shape, dtype = tree.children
            return ty.TensorType([self._dim(d) for d in shape.children], self._dtype(dtype))
        if tree.data == "named_type":
            return self._named(tree.children[0])
        if tree.data == "tuple_type":
            return ty.TupleType([self.elaborate(t, inner) for t in tree.children])
        if tree.data == "func_type":
            return self._func_type(tree, inner)
        if tree.data == "ref_type":
            return ty.RefType(self.elaborate(tree.children[1], inner))
        name, *args = tree.children
        if str(name) not in self.data_types:
            raise self._unknown(name)
        return ty.TypeCall(self.data_types[str(name)], [self.elaborate(a, inner) for a in args])

    def _func_type(self, tree: Syntax, inner: int) -> ty.FuncType:
        parts = tree.children[1:]
        params: list[ty.TypeVar] = []
        if isinstance(parts[0], Tree) and parts[0].data == "type_params":
            params = [self.declare(str(name)) for name in parts.pop(0).children]
        *args, ret = [self.elaborate(t, inner) for t in parts]
        for var in params:
            self.forget(var.name_hint)
        return ty.FuncType(args, ret, params)

    def _named(self, token: Token) -> ty.Type:
        name = str(token)
        if name == "_":
            return ty.IncompleteType()
        if self._variables.get(name):
            return self._variables[name][-1]
        if name in self.data_types:
            return ty.TypeCall(self.data_types[name], ())
        if _DTYPE.fullmatch(name):
            return ty.TensorType((), _PLAIN.get(name, name))
        raise self._unknown(token)

    def _unknown(self, token: Token) -> RelayTypeError:
        return error_at(
            RelayTypeError,
            f"type '{token}'",
            self._span(token),
            "Tensor[(...), dtype], a dtype, a tuple, a function type or a type of the module",
        )

    def _dtype(self, token: Token) -> str:
        if not _DTYPE.fullmatch(token):
            raise error_at(
                RelayTypeError,
                f"dtype '{token}'",
                self._span(token),
                "float32, float16, bfloat16, int32, uint8, bool, ...",
            )
        return str(token)

    def _dim(self, token: Token) -> ty.Dim:
        if token.type == "ANY":
            return ty.Any()
        if token.type == "META":
            dim = self._meta_object(token)
            if isinstance(dim, (int, ty.Any, ty.SymbolicDim)):
                return dim
        text = re.sub(r"i(?:32|64)$", "", token)
        if not text.isdigit() or len(text) > 18:
            raise error_at(
                RelaySyntaxError, f"dimension '{token}'", self._span(token), "a size or ?"
            )
        return int(text)
