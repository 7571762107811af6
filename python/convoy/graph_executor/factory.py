"""A built network, which makes executors and can be exported."""

from __future__ import annotations

import os
import tarfile
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from convoy.errors import InvalidOption
from convoy.graph_executor.graph_json import graph_json
from convoy.graph_executor.module import Executor, GraphModule

if TYPE_CHECKING:
    import tvm

    from convoy.relay.module import IRModule
    from convoy.runtime.compiled import CompiledModule


class DeviceCode:
    """Kernels that TVM compiled, for a reader.

    Attributes:
        type_key: The kind of code, "cuda".
    """

    def __init__(self, module: Any) -> None:
        self.type_key: str = module.kind
        self._module = module

    def get_source(self, fmt: str = "") -> str:
        """Return the source, or the code in a format of TVM's such as "ptx"."""
        return str(self._module.inspect_source(fmt))


class GraphExecutorFactoryModule:
    """A built network, as `relay.build` returns it: `lib["default"](dev)` makes an executor.

    Attributes:
        module: The compiled module, a `convoy.CompiledModule`.
        ir_mod: The Relay module it was built from, None for a loaded one.
        target: The kind of target, "cuda" or "llvm".
        libmod_name: The name under which it makes executors.
    """

    def __init__(
        self, compiled: CompiledModule, ir_mod: IRModule | None, target: str, name: str
    ) -> None:
        self.module, self.ir_mod, self.target, self.libmod_name = compiled, ir_mod, target, name
        self.function_metadata: dict[str, object] = {}

    def __getitem__(self, item: str) -> Callable[..., Any]:
        others: dict[str, Callable[..., Any]] = {
            "debug_create": lambda name, *devices: self[name](*devices),
            "cuda_graph_create": self._create,  # all executors on a GPU replay one
            "get_graph_json": self.get_graph_json,
            "get_graph_params": self.get_params,
            "remove_params": self.get_lib,
        }
        if item in others:
            return others[item]
        if item != self.libmod_name and self.ir_mod is not None:  # a file does not have the name
            raise InvalidOption(f"function '{item}' of the module", f"'{self.libmod_name}'")
        return self._create

    def _create(self, *devices: tvm.runtime.Device) -> Executor:
        """Make an executor on the first device; further ones are ignored."""
        return Executor(self.module.session(devices[0] if devices else None))

    def get_source(self, fmt: str = "") -> str:
        """Return the host's code, for a reader.

        Args:
            fmt: "asm" for assembler text; anything else is LLVM's. Of a module for a GPU the host's
                part is a table of launches, in JSON.

        Returns:
            The text; a comment in its place for a module of the cache of builds, which is linked.
        """
        form = "asm" if fmt == "asm" else "ll"
        code = [one for one in self._modules() if one.kind in ("llvm", "convoy.launches")]
        if code:
            return "\n".join(str(module.inspect_source(form)) for module in code)
        return "; linked by an earlier build: build with cache=False to see its code\n"

    @property
    def imported_modules(self) -> list[DeviceCode]:
        """The kernels that TVM compiled for the GPU; those of libraries have no source."""
        return [DeviceCode(module) for module in self._modules() if module.kind == "cuda"]

    def _modules(self) -> list[Any]:
        """Return the modules of TVM inside the compiled one, each before those it imports."""
        found = [getattr(self.module.module, "mod", self.module.module)]
        for module in found:
            found.extend(module.imports)
        return found

    def get_params(self) -> dict[str, object]:
        """Return no parameters: bound ones are constants inside the module."""
        return {}

    def get_lib(self) -> GraphExecutorFactoryModule:
        """Return the library, which is not apart from the graph."""
        return self

    def get_graph_json(self) -> str:
        """Return inputs and outputs as JSON; the graph itself is inside the module."""
        return graph_json(self.module.meta)

    get_executor_config = get_graph_json

    @property
    def graph_json(self) -> str:
        """Return what `get_graph_json` returns."""
        return self.get_graph_json()

    @property
    def lib(self) -> GraphExecutorFactoryModule:
        """The result of `get_lib`."""
        return self

    @property
    def params(self) -> dict[str, object]:
        """Return what `get_params` returns."""
        return self.get_params()

    def export_library(
        self,
        file_name: str | os.PathLike[str],
        fcompile: Callable[..., None] | None = None,
        addons: Sequence[str] | None = None,
        **kwargs: object,
    ) -> str:
        """Write one self-contained shared object, which `relay.load_module` reads.

        A file name that ends in `.tar` gets it inside a tar file.
        """
        if addons:
            raise InvalidOption("addons", "none")
        if fcompile is not None:
            kwargs["fcompile"] = fcompile
        path = os.fspath(file_name)
        if not path.endswith(".tar"):
            self.module.export_library(path, **kwargs)
            return path
        with tempfile.TemporaryDirectory() as folder, tarfile.open(path, "w") as archive:
            library = os.path.join(folder, "library.so")
            self.module.export_library(library, **kwargs)
            archive.add(library, "library.so")
        return path

    def save(self, file_name: str, fmt: str = "") -> NoReturn:
        """Refuse: kernels, constants and the graph are one file."""
        del fmt
        raise InvalidOption(f"save('{file_name}')", "export_library", "It writes a shared object")

    def __iter__(self) -> Iterator[str | GraphExecutorFactoryModule | dict[str, object]]:
        warnings.warn(
            "legacy graph executor behavior of producing json / lib / params:"
            " use the factory itself",
            DeprecationWarning,
            stacklevel=2,
        )
        return iter((self.get_graph_json(), self, self.get_params()))


def create(
    graph_json_str: str,
    libmod: GraphExecutorFactoryModule,
    device: tvm.runtime.Device | Sequence[tvm.runtime.Device],
) -> GraphModule:
    """Make a GraphModule of the three parts that iterating over a built library yields."""
    del graph_json_str  # the graph is inside the library
    devices = device if isinstance(device, (list, tuple)) else [device]
    if not isinstance(libmod, GraphExecutorFactoryModule):
        raise InvalidOption(f"a {type(libmod).__name__}", "the library that relay.build made")
    return GraphModule(libmod[libmod.libmod_name](*devices))
