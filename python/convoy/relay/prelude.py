"""`relay.prelude`: lists, options, trees and the functions on them, written in Relay (`std/`)."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from convoy.errors import InvalidOption, UnsupportedOp
from convoy.relay.ast import GlobalVar
from convoy.relay.infer import infer_module
from convoy.relay.module import IRModule, register_library
from convoy.relay.source import Source
from convoy.relay.text import parse_module_text

_FILES = ("prelude.rly", "nat.rly", "core.rly")
_NO_TENSOR_ARRAYS = "Tensor arrays are lists of any tensors here: use List, Cons and Nil"


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
    those of `prelude.mod.get_type("List")`.

    Args:
        mod: The module; None for a new one.

    Attributes:
        mod: The module.
    """

    def __init__(self, mod: IRModule | None = None) -> None:
        self.mod = IRModule() if mod is None else mod
        if "id" not in self.mod:
            import_from_std(self.mod, "prelude.rly")

    def __getattr__(self, name: str) -> GlobalVar:
        mod = self.__dict__["mod"]
        if name not in mod:
            raise AttributeError(f"the prelude has no {name}")
        return mod.get_global_var(name)

    def get_var(self, canonical: str, dtype: str) -> Any:
        """Tensor arrays are not supported.

        Raises:
            UnsupportedOp: Always.
        """
        raise UnsupportedOp(f"the tensor array's {canonical} of {dtype}", "", _NO_TENSOR_ARRAYS)

    get_ctor = get_global_var = get_name = get_type = get_tensor_ctor = get_var
    get_ctor_static = get_global_var_static = get_type_static = get_name_static = get_var
    get_tensor_ctor_static = get_var


class TensorArrayOps:
    """Tensor arrays, which are not supported.

    Raises:
        UnsupportedOp: Always.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedOp(type(self).__name__, "", _NO_TENSOR_ARRAYS)


class StaticTensorArrayOps(TensorArrayOps):
    """Tensor arrays of one shape, which are not supported."""


__all__ = ["Prelude", "StaticTensorArrayOps", "TensorArrayOps", "import_from_std"]
