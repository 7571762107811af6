"""Algebraic data types of the text format: definitions, constructors and patterns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from convoy.errors import ConvoyError
from convoy.relay import adt
from convoy.relay.adt import Constructor, Pattern, TypeData
from convoy.relay.ast import Var
from convoy.relay.module import IRModule
from convoy.relay.source import nearest
from convoy.relay.text.types import Syntax, TypeElaborator
from convoy.relay.types import GlobalTypeVar


class DataTypes:
    """The data types that a text may use.

    Args:
        types: Elaborates types; it learns the names of the data types.
        error: Makes a syntax error at a place.

    Attributes:
        constructors: The constructors by name.
    """

    def __init__(self, types: TypeElaborator, error: Callable[..., ConvoyError]) -> None:
        self._types, self._error = types, error
        self.constructors: dict[str, Constructor] = {}

    def read(self, mod: IRModule, definitions: Sequence[Syntax]) -> None:
        """Add the definitions of a text to its module; they may use each other."""
        for data in mod.type_definitions.values():
            self._types.data_types[data.header.name_hint] = data.header
            self.constructors.update({c.name_hint: c for c in data.constructors})
        for tree in definitions:
            name = str(tree.children[1])
            if name in self._types.data_types:
                raise self._error(tree, f"a second type {name}", "one definition of a name")
            self._types.data_types[name] = GlobalTypeVar(name)
        for tree in definitions:
            data = self._definition(tree)
            mod.add_type(data)
            self.constructors.update({c.name_hint: c for c in data.constructors})

    def _definition(self, tree: Syntax) -> TypeData:
        _, name, *rest = tree.children
        header = self._types.data_types[str(name)]
        params = []
        if rest and rest[0].data == "type_params":
            params = [self._types.declare(str(p)) for p in rest.pop(0).children]
        constructors = []
        for part in rest:
            label, *fields = part.children
            inputs = [self._types.elaborate(f) for f in fields]
            constructors.append(Constructor(str(label), inputs, header))
        for param in params:
            self._types.forget(param.name_hint)
        return TypeData(header, params, constructors)

    def pattern(self, tree: Syntax, bind: Callable[[Syntax], Var]) -> Pattern:
        """Elaborate a pattern; `bind` declares its variables."""
        if tree.data == "pattern_var":
            return adt.PatternVar(bind(tree))
        if tree.data == "pattern_tuple":
            return adt.PatternTuple([self.pattern(p, bind) for p in tree.children[1:]])
        name, *parts = tree.children
        if str(name) == "_":
            return adt.PatternWildcard()
        constructor = self.constructors.get(str(name))
        if constructor is None:
            near = nearest(str(name), self.constructors)
            raise self._error(tree, f"constructor {name}, which no type has", "", near)
        patterns = [self.pattern(p, bind) for p in parts]
        if patterns and len(patterns) != len(constructor.inputs):
            got = f"{name} with {len(patterns)} fields"
            raise self._error(tree, got, str(len(constructor.inputs)))
        return adt.PatternConstructor(constructor, patterns)
