"""What `relay.vm.compile` returns and VirtualMachine runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from convoy.errors import CorruptArtefact, InvalidOption, UnsupportedOp
from convoy.ir.fields import parse_json
from convoy.relay.ast import Function
from convoy.relay.evaluate.interpreter import Interpreter
from convoy.relay.module import IRModule
from convoy.relay.specialized import Specialized


class Executable:
    """A compiled module, for `VirtualMachine`.

    Attributes:
        compiled: A `convoy.CompiledModule`, or TVM's executable for modules beyond it; None where
            all is compiled when it runs.
        input_names: The inputs of `main`, in order.
        is_graph: Whether `compiled` is a CompiledModule.
        result: The structure of the result: None for a tensor, a list for a tuple.
        input_dtypes: Their dtypes by name, empty where the executable was loaded.
        specialized: Compiles for the sizes that occur; None where `compiled` runs all.
    """

    def __init__(
        self,
        compiled: Any,
        input_names: list[str],
        is_graph: bool,
        result: Any = None,
        specialized: Specialized | None = None,
    ) -> None:
        self.compiled, self.input_names, self.is_graph = compiled, input_names, is_graph
        self.result = result
        self.specialized = specialized
        self.input_dtypes: dict[str, str] = {}

    @property
    def mod(self) -> Executable:
        """The executable itself, as TVM names it."""
        return self

    @property
    def lib(self) -> Any:
        """The compiled module, which can be exported."""
        return self.compiled

    def export_library(self, file_name: str | os.PathLike[str], **options: Any) -> None:
        """Write the library; see `save` for the code that goes with it."""
        self.compiled.export_library(os.fspath(file_name), **options)

    def save(self) -> tuple[bytearray, Any]:
        """Return the code and the library, as TVM has it.

        `lib.export_library` writes the library; the code is a few bytes on how to call it.
        """
        if self.compiled is None:
            raise InvalidOption(
                "a module that is compiled when it runs, for the sizes that occur",
                "one of known sizes",
                "Save its source with relay.save_json",
            )
        about = {"inputs": self.input_names, "graph": self.is_graph, "result": self.result}
        return bytearray(json.dumps(about).encode()), self.compiled

    @staticmethod
    def load_exec(code: bytes | bytearray, lib: Any) -> Executable:
        """Make an executable of what `save` returned.

        Args:
            code: The code.
            lib: The library, or the loaded one: by `relay.load_module`, or, with unknown sizes or
                branches, by `tvm.runtime.load_module`.

        Raises:
            CorruptArtefact: Code that `save` did not write, or a library that does not go with it.
        """
        try:
            about = parse_json(bytes(code), "code", CorruptArtefact)
            names, is_graph = [str(n) for n in about["inputs"]], bool(about["graph"])
            result = _checked(about["result"])
        except (ValueError, TypeError, KeyError):
            raise CorruptArtefact("code that is none", "what Executable.save gave") from None
        loaded = is_graph and not hasattr(lib, "session")
        compiled = getattr(lib, "module", lib) if loaded else lib
        if is_graph and not hasattr(compiled, "session"):
            got = f"a library of type {type(lib).__name__}"
            raise CorruptArtefact(got, "one that relay.load_module loaded")
        return Executable(compiled, names, is_graph, result)


class Interpreted(Executable):
    """A module for the evaluator, whose kernels are compiled when they are first called.

    Attributes:
        module: The Relay module.
        target: The kind of target.
        compile_kernel: Compiles a function of operators for a device, and returns what runs it.
    """

    def __init__(
        self,
        module: IRModule,
        target: str,
        compile_kernel: Callable[[Function, Any], Callable[..., Any]],
    ) -> None:
        names = [p.name_hint for p in module["main"].params]
        super().__init__(None, names, is_graph=False)
        self.module, self.target, self.compile_kernel = module, target, compile_kernel

    def save(self) -> tuple[bytearray, Any]:
        """Refuse to save.

        Raises:
            UnsupportedOp: Always.
        """
        raise UnsupportedOp(
            "a program with data types, references, recursion or functions as values, to be saved",
            "one that compiles as a whole",
            "Save the Relay module (relay.save_json) and compile it after loading",
        )

    def interpreter(self, device: Any) -> Interpreter:
        """Return an evaluator on a device."""

        def compile_kernel(function: Function) -> Any:
            return self.compile_kernel(function, device)

        return Interpreter(self.module, device, self.target, compile_kernel)


def _checked(result: Any) -> Any:
    """Check a structure from a file.

    Raises:
        TypeError: Something else.
    """
    if isinstance(result, list):
        return list(map(_checked, result))
    if result is not None:
        raise TypeError
    return None
