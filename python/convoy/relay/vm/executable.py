"""The executable that `relay.vm.compile` returns and VirtualMachine runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from convoy.errors import CorruptArtefact, InvalidOption
from convoy.ir.fields import parse_json
from convoy.relay.ast import Function
from convoy.relay.evaluate.interpreter import Interpreter
from convoy.relay.json_format import save_json
from convoy.relay.module import IRModule
from convoy.relay.removed import removed_names
from convoy.relay.specialized import Specialized
from convoy.relay.vm import archive


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

    def __getattr__(self, name: str) -> Any:
        """Return a stand-in for a member that TVM's executable had."""
        return removed_names("runtime.vm.Executable")(name)

    @property
    def mod(self) -> Executable:
        """The executable itself, as TVM names it."""
        return self

    @property
    def lib(self) -> Executable:
        """The executable itself, which can be exported."""
        return self

    def export_library(self, file_name: str | os.PathLike[str], **options: Any) -> None:
        """Write all that is needed to run to one file, which `relay.load_module` reads.

        Args:
            file_name: Its path.
            **options: Options of TVM's export_library, for what was compiled ahead of time.

        Raises:
            InvalidOption: Options of `relay.vm.compile` that are no plain data, in a module that
                is compiled when it runs.
        """
        library = b""
        if self.compiled is not None:
            export = self.compiled.export_library
            library = archive.library_bytes(lambda path: export(path, **options))
        archive.write(file_name, archive.Archive(self.about(), library, self.source()))

    def about(self) -> dict[str, Any]:
        """Return what a file says of the executable, as plain data."""
        about = {
            "inputs": self.input_names, "graph": self.is_graph, "result": self.result,
            "dtypes": self.input_dtypes,
        }  # fmt: skip
        if self.specialized is not None:
            about |= {"target": self.specialized.kind, "options": _saved(self.specialized.options)}
        return about

    def source(self) -> str:
        """Return the Relay module that is compiled when it runs, as JSON; empty for none."""
        return "" if self.specialized is None else save_json(self.specialized.mod)

    def save(self) -> tuple[bytearray, Executable]:
        """Return code and library, as TVM has it: a few bytes, and what can be exported."""
        return bytearray(json.dumps(self.input_names).encode()), self

    @staticmethod
    def load_exec(code: bytes | bytearray, lib: Any) -> Executable:
        """Return the executable of what `save` returned.

        Args:
            code: The code.
            lib: The library, or what `relay.load_module` made of the exported one.

        Raises:
            CorruptArtefact: Code that `save` did not write, or a library that does not go with it.
        """
        names = parse_json(bytes(code), "code", CorruptArtefact)
        if not isinstance(lib, Executable):
            got = f"a library of type {type(lib).__name__}"
            raise CorruptArtefact(got, "one that relay.load_module loaded")
        if names != lib.input_names:
            raise CorruptArtefact(f"code of inputs {names}", f"{lib.input_names}, of the library")
        return lib


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

    def about(self) -> dict[str, Any]:
        return {"target": self.target, "evaluated": True}

    def source(self) -> str:
        return save_json(self.module)

    def interpreter(self, device: Any) -> Interpreter:
        """Return an evaluator on a device."""

        def compile_kernel(function: Function) -> Any:
            return self.compile_kernel(function, device)

        return Interpreter(self.module, device, self.target, compile_kernel)


def _saved(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return options that a file can hold.

    Raises:
        InvalidOption: Others.
    """
    for name, value in options.items():
        try:
            json.dumps(value)
        except TypeError:
            raise InvalidOption(
                f"a {type(value).__name__} as {name}, of a module to be exported", "plain data",
                "Such a module is compiled when it runs, with the options of relay.vm.compile",
            ) from None  # fmt: skip
    return options
