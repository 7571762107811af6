"""A session with the interface of ``onnxruntime.InferenceSession``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import InvalidOption
from .ir.artifact import TensorInfo
from .runtime.compiled import CompiledModule, load

if TYPE_CHECKING:
    import onnx
    import tvm

    from .runtime.values import Value

#: onnxruntime's names of element types.
_TYPES = {"float32": "float", "float64": "double"}


@dataclass(frozen=True)
class NodeArg:
    """An input or output: its name, shape, and type such as ``tensor(float)``."""

    name: str
    shape: list[int]
    type: str


class InferenceSession:
    """Run a network by names of inputs and outputs, like onnxruntime. Not thread-safe.

    Args:
        path_or_model: File written by ``export_library`` (``.so``), a model file (ONNX, Relay), an
            ONNX model (bytes or loaded) or Relax module to build, or a compiled module.
        target: "cuda" or "llvm", for a model that is built (default: cuda if there is a GPU).
        shapes: Shapes of inputs by name, for axes that a model leaves open.
        batch: The size of a first axis that is open.
        options: Keyword arguments of :func:`convoy.build`.

    Raises:
        InvalidOption: Options were given for a compiled module; also the errors of
            :func:`convoy.load`, of reading a model and of :func:`convoy.build`.
    """

    def __init__(
        self,
        path_or_model: str
        | os.PathLike[str]
        | bytes
        | CompiledModule
        | tvm.IRModule
        | onnx.ModelProto,
        target: str = "",
        shapes: Mapping[str, Sequence[int]] | None = None,
        batch: int | None = None,
        **options: Any,
    ) -> None:
        self._compiled = _compiled(path_or_model, target, shapes, batch, options)
        self._session = self._compiled.session()

    @property
    def compiled(self) -> CompiledModule:
        """The module that is run."""
        return self._compiled

    def get_inputs(self) -> list[NodeArg]:
        """The inputs, in order."""
        return [_node_arg(info) for info in self._compiled.meta.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, in order."""
        return [_node_arg(info) for info in self._compiled.meta.outputs]

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Value]
    ) -> list[np.ndarray]:
        """Run the network once and wait for it.

        Args:
            output_names: Outputs to return, in this order; None or empty: all.
            input_feed: An array for each input by name, of its shape and dtype.

        Raises:
            InvalidOption: An unknown or missing name, a wrong shape, or a dtype that would lose
                values.
        """
        inputs = [info.name for info in self._compiled.meta.inputs]
        names = [info.name for info in self._compiled.meta.outputs]
        _check("input", input_feed, inputs)
        if missing := [name for name in inputs if name not in input_feed]:
            raise InvalidOption(f"no value for input {missing[0]!r}", "one for each input")
        wanted = list(output_names or names)
        _check("output", wanted, names)
        self._session.run(input_feed)
        return [self._session.output(names.index(name)).numpy() for name in wanted]


def _check(what: str, given: Mapping[str, object] | Sequence[str], known: Sequence[str]) -> None:
    if unknown := [name for name in given if name not in known]:
        raise InvalidOption(f"{what} {unknown[0]!r}", f"one of {', '.join(known)}")


def _node_arg(info: TensorInfo) -> NodeArg:
    return NodeArg(info.name, list(info.shape), f"tensor({_TYPES.get(info.dtype, info.dtype)})")


def _compiled(
    given: Any,
    target: str,
    shapes: Mapping[str, Sequence[int]] | None,
    batch: int | None,
    options: Mapping[str, Any],
) -> CompiledModule:
    built = isinstance(given, CompiledModule)
    path = Path(given) if isinstance(given, str | os.PathLike) else None
    if built or (path is not None and path.suffix == ".so"):
        shared = {"target": target, "shapes": shapes, "batch": batch}
        if named := [name for name, value in shared.items() if value] + list(options):
            raise InvalidOption(f"{named[0]}= for a module that is compiled", "a model to build")
        return given if built else load(str(path))
    from .pipeline import build
    from .runtime import present_device

    mod = _module(given, path, shapes, batch)
    return build(mod, target or ("cuda" if present_device() else "llvm"), **options)


def _module(
    given: Any, path: Path | None, shapes: Mapping[str, Sequence[int]] | None, batch: int | None
) -> Any:
    """The Relax module of a model file, of an ONNX model, or as it is given."""
    from .frontend import model_file
    from .frontend.onnx import from_onnx

    if path is not None:
        return model_file.read(path, batch=batch, shapes=shapes)
    if isinstance(given, bytes) or hasattr(given, "opset_import"):
        return from_onnx(given, shapes, batch)
    if shapes or batch is not None:
        name = "shapes" if shapes else "batch"
        raise InvalidOption(f"{name}= for a Relax module, which has its own", "a model file")
    return given
