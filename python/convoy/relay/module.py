"""Modules: functions and data types by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from convoy.errors import InvalidOption, RelayTypeError
from convoy.relay.adt import Constructor, TypeData, check_definition, tag_of
from convoy.relay.ast import Expr, Function, GlobalVar
from convoy.relay.print_hook import print_text
from convoy.relay.source import nearest
from convoy.relay.types import GlobalTypeVar
from convoy.relay.visit import free_vars

# Adds the definitions of a library file to a module: `prelude.import_from_std`, which registers
# itself, because it needs the parser.
_libraries: list[Callable[[Any, str], None]] = []


def register_library(function: Callable[[Any, str], None]) -> Callable[[Any, str], None]:
    """Make a function the one behind `IRModule.import_from_std`."""
    _libraries[:] = [function]
    return function


class TypeDefinitions(dict[GlobalTypeVar, TypeData]):
    """Algebraic data types by name; their items are a list, as in TVM."""

    def items(self) -> Any:
        """Return pairs of GlobalTypeVar and definition."""
        return list(super().items())


class IRModule:
    """A set of functions, each with its GlobalVar.

    Args:
        functions: Functions by GlobalVar or by name.
        type_definitions: Algebraic data types by GlobalTypeVar.
        attrs: Attributes of the module.
    """

    def __init__(
        self,
        functions: Mapping[Any, Function] | None = None,
        type_definitions: Mapping[Any, Any] | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> None:
        self._types: dict[str, TypeData] = {}
        self._functions: dict[str, tuple[GlobalVar, Function]] = {}
        self.attrs: dict[str, Any] = dict(attrs or {})
        for key, function in (functions or {}).items():
            self[key] = function
        for data in (type_definitions or {}).values():
            self.add_type(data)

    @staticmethod
    def from_expr(
        expr: Expr,
        functions: Mapping[Any, Function] | None = None,
        type_defs: Mapping[Any, Any] | None = None,
    ) -> IRModule:
        """Make a module with `expr` as `main`; its free variables become parameters."""
        mod = IRModule(functions, type_defs)
        if not isinstance(expr, Function):
            expr = Function(tuple(free_vars(expr)), expr)
        mod[str((expr.attrs or {}).get("global_symbol", "main"))] = expr
        return mod

    @property
    def functions(self) -> dict[GlobalVar, Function]:
        """The functions by GlobalVar."""
        return dict(self._functions.values())

    def __getitem__(self, key: GlobalVar | GlobalTypeVar | str) -> Any:
        if isinstance(key, GlobalTypeVar):
            self.get_type(key.name_hint)
            return self._types[key.name_hint]
        name = key.name_hint if isinstance(key, GlobalVar) else key
        if name not in self._functions:
            raise RelayTypeError(
                f"no function @{name} in the module, which has "
                + (", ".join(f"@{n}" for n in self._functions) or "none"),
                remedy=nearest(name, self._functions),
            )
        return self._functions[name][1]

    def __setitem__(self, key: GlobalVar | GlobalTypeVar | str, function: Any) -> None:
        if isinstance(function, TypeData):
            self.add_type(function)
            return
        if isinstance(function, Expr) and not isinstance(function, Function):
            function = Function(tuple(free_vars(function)), function)
        if not isinstance(function, Function):
            raise RelayTypeError(f"a {type(function).__name__} as module function", "a Function")
        name = key.name_hint if isinstance(key, GlobalVar) else str(key)
        var = key if isinstance(key, GlobalVar) else self._var(name)
        self._functions[name] = (var, function)

    @property
    def type_definitions(self) -> TypeDefinitions:
        """The algebraic data types by GlobalTypeVar."""
        return TypeDefinitions((data.header, data) for data in self._types.values())

    def add_type(self, data: TypeData) -> None:
        """Add an algebraic data type; its constructors get their tags.

        Raises:
            RelayTypeError: Constructors that do not belong to it.
        """
        check_definition(data)
        self._types[data.header.name_hint] = data
        for index, constructor in enumerate(data.constructors):
            object.__setattr__(constructor, "tag", tag_of(data.header, index))

    def get_type(self, name: str) -> list[Any]:
        """Return the GlobalTypeVar of a data type and its constructors.

        Raises:
            RelayTypeError: No such type.
        """
        if name not in self._types:
            raise RelayTypeError(f"no type {name} in the module", remedy=nearest(name, self._types))
        data = self._types[name]
        return [data.header, *data.constructors]

    def get_global_type_var(self, name: str) -> GlobalTypeVar:
        """Return the GlobalTypeVar of a data type."""
        return self.get_type(name)[0]

    def get_global_type_vars(self) -> list[GlobalTypeVar]:
        """Return the GlobalTypeVars of all data types."""
        return [data.header for data in self._types.values()]

    def get_constructor(self, tag: int) -> Constructor:
        """Return the constructor of a tag.

        Raises:
            RelayTypeError: No such constructor.
        """
        for data in self._types.values():
            for constructor in data.constructors:
                if constructor.tag == tag:
                    return constructor
        raise RelayTypeError(f"no constructor of tag {tag} in the module")

    def _var(self, name: str) -> GlobalVar:
        return self._functions[name][0] if name in self._functions else GlobalVar(name)

    def __contains__(self, name: object) -> bool:
        key = name.name_hint if isinstance(name, GlobalVar) else name
        return key in self._functions

    def __delitem__(self, name: str) -> None:
        del self._functions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def items(self) -> list[tuple[GlobalVar, Function]]:
        """Return pairs of GlobalVar and function."""
        return list(self._functions.values())

    def get_global_var(self, name: str) -> GlobalVar:
        """Return the GlobalVar of a function."""
        self[name]  # raises with the near names
        return self._functions[name][0]

    def get_global_vars(self) -> list[GlobalVar]:
        """Return the GlobalVars of all functions."""
        return [var for var, _ in self._functions.values()]

    def _add(self, var: GlobalVar | str, function: Any, update: bool = False) -> None:
        """Add a function, under the name that TVM 0.18's own scripts call it by."""
        name = var.name_hint if isinstance(var, GlobalVar) else var
        if name in self._functions and not update:
            raise RelayTypeError(f"a second function @{name}", "a new name, or update=True")
        self[var] = function

    def update_func(self, var: GlobalVar, function: Function) -> None:
        """Replace or add a function."""
        self[var] = function

    def update(self, other: IRModule) -> None:
        """Replace or add the functions of another module."""
        for var, function in other.items():
            self[var] = function
        self._types.update(other._types)

    def import_from_std(self, file_name: str) -> None:
        """Add the definitions of a library file: "prelude.rly" or "nat.rly"."""
        _libraries[0](self, file_name)

    def shallow_copy(self) -> IRModule:
        """Return a module of the same functions, types and attributes."""
        return IRModule(self.functions, self.type_definitions, self.attrs)

    def with_attr(self, key: str, value: Any) -> IRModule:
        """Return a copy with one more attribute."""
        copy = self.shallow_copy()
        copy.attrs[key] = value
        return copy

    def same_as(self, other: object) -> bool:
        """Check for the very same module."""
        return self is other

    def get_attr(self, key: str) -> Any:
        """Return an attribute, None where there is none."""
        return self.attrs.get(key)

    def with_attrs(self, attrs: Mapping[str, Any]) -> IRModule:
        """Return a copy with more attributes."""
        copy = self.shallow_copy()
        copy.attrs.update(attrs)
        return copy

    def without_attr(self, key: str) -> IRModule:
        """Return a copy without an attribute."""
        copy = self.shallow_copy()
        copy.attrs.pop(key, None)
        return copy

    def show(self, style: str | None = None, **options: Any) -> None:
        """Print the module to the terminal; colors and other options are ignored."""
        del style, options
        print(self.astext(show_meta_data=False))

    def astext(self, show_meta_data: bool = True, annotate: object = None) -> str:
        """Print the module as text that `relay.parse` (and TVM 0.18) reads back."""
        return print_text(self, show_meta_data)

    def __str__(self) -> str:
        return self.astext(show_meta_data=False)


#: The name that the class had before TVM 0.7.
Module = IRModule


def as_module(ir_mod: Any) -> IRModule:
    """Return the module to compile; a bare function becomes its `main`.

    Raises:
        InvalidOption: Neither a module nor a function.
    """
    if isinstance(ir_mod, Function):
        return IRModule.from_expr(ir_mod)
    if not isinstance(ir_mod, IRModule):
        raise InvalidOption(
            f"a {type(ir_mod).__module__}.{type(ir_mod).__name__}",
            "a convoy.relay IRModule",
            "Type of input parameter mod must be IRModule",
        )
    return ir_mod
