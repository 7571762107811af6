"""`relay.prelude`: lists, options, trees and the functions on them, written in Relay (`std/`)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from convoy.errors import InvalidOption
from convoy.relay.ast import GlobalVar
from convoy.relay.infer import infer_module
from convoy.relay.module import IRModule, register_library
from convoy.relay.source import Source
from convoy.relay.tensor_arrays import (
    StaticTensorArrayOps,
    TensorArrayOps,
    define_elements,
    ranked_name,
    static_name,
)
from convoy.relay.text import parse_module_text
from convoy.relay.types import Dim

_FILES = ("prelude.rly", "nat.rly", "core.rly")

#: Types and constructors that were attributes of a prelude until TVM 0.7.
_TYPES = {"l": "List", "nat": "nat", "optional": "Option", "tree": "Tree"}
_CONSTRUCTORS = {
    **dict.fromkeys(("cons", "nil"), "List"),
    **dict.fromkeys(("none", "some"), "Option"),
    **dict.fromkeys(("s", "z"), "nat"),
    "rose": "Tree",
}


@register_library
def import_from_std(mod: IRModule, file_name: str) -> None:
    """Add the definitions of a library file to a module.

    Raises:
        InvalidOption: No such file.
    """
    if file_name not in _FILES:
        raise InvalidOption(f"library '{file_name}'", " or ".join(_FILES))
    text = files("convoy.relay").joinpath("std", file_name).read_text("utf-8")
    mod.update(infer_module(parse_module_text(Source(file_name, text), mod)))


class Prelude:
    """The standard definitions, added to a module.

    Each function is an attribute: `prelude.map`, `prelude.length`; types and constructors are
    those of `prelude.mod.get_type("List")`, and attributes under their names of TVM 0.6:
    `prelude.l`, `prelude.cons`.

    Args:
        mod: The module; None for a new one.

    Attributes:
        mod: The module.
    """

    def __init__(self, mod: IRModule | None = None) -> None:
        self.mod = IRModule() if mod is None else mod
        if "id" not in self.mod:
            import_from_std(self.mod, "prelude.rly")
            define_elements(self.mod)

    def __getattr__(self, name: str) -> Any:
        mod = self.__dict__["mod"]
        if name in _TYPES:
            return mod.get_type(_TYPES[name])[0]
        if name in _CONSTRUCTORS:
            _, *constructors = mod.get_type(_CONSTRUCTORS[name])
            return next(c for c in constructors if c.name_hint.lower().startswith(name))
        if name not in mod:
            raise AttributeError(f"the prelude has no {name}")
        return mod.get_global_var(name)

    # ---- tensor arrays: names, functions, types and constructors, defined when they are asked for

    def _array(self, dtype: str) -> TensorArrayOps:
        arrays = TensorArrayOps(self, dtype)
        arrays.register()
        return arrays

    def _static_array(self, dtype: str, shape: Sequence[Dim]) -> StaticTensorArrayOps:
        arrays = StaticTensorArrayOps(self, dtype, shape)
        arrays.register()
        return arrays

    def get_name(self, canonical: str, dtype: str) -> str:
        """Return the name of a definition for tensors of a dtype and of any size."""
        return ranked_name(canonical, dtype)

    def get_global_var(self, canonical: str, dtype: str) -> GlobalVar:
        """Return the function `canonical` for tensors of a dtype and of any size."""
        return self._array(dtype).get_global_var(canonical)

    get_var = get_global_var

    def get_type(self, canonical: str, dtype: str) -> Any:
        """Return the type `canonical` for tensors of a dtype and of any size."""
        return self._array(dtype).get_type(canonical)

    def get_tensor_ctor(self, canonical: str, dtype: str) -> Any:
        """Return the constructor "tensor_nil", or "tensor2" for tensors of two axes."""
        return self._array(dtype).get_ctor(canonical)

    def get_ctor(self, ty_name: str, canonical: str, dtype: str) -> Any:
        """Return a constructor of a type by their names."""
        return self.get_tensor_ctor(canonical, dtype)

    def get_name_static(self, canonical: str, dtype: str, shape: Sequence[Dim]) -> str:
        """Return the name of a definition for tensors of a dtype and a shape."""
        return static_name(canonical, dtype, shape)

    def get_global_var_static(self, canonical: str, dtype: str, shape: Sequence[Dim]) -> GlobalVar:
        """Return the function `canonical` for tensors of a dtype and a shape."""
        return self._static_array(dtype, shape).get_global_var(canonical)

    def get_type_static(self, canonical: str, dtype: str, shape: Sequence[Dim]) -> Any:
        """Return the type `canonical` for tensors of a dtype and a shape."""
        return self._static_array(dtype, shape).get_type(canonical)

    def get_tensor_ctor_static(self, canonical: str, dtype: str, shape: Sequence[Dim]) -> Any:
        """Return the constructor "tensor_nil" or "tensor_constructor" of a shape."""
        return self._static_array(dtype, shape).get_ctor(canonical)

    def get_ctor_static(
        self, ty_name: str, canonical: str, dtype: str, shape: Sequence[Dim]
    ) -> Any:
        """Return a constructor of a type by their names."""
        return self.get_tensor_ctor_static(canonical, dtype, shape)


__all__ = ["Prelude", "StaticTensorArrayOps", "TensorArrayOps", "import_from_std"]
