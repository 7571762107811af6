"""A session with the interface of ``onnxruntime.InferenceSession``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from .errors import InvalidOption
from .ir.artifact import TensorInfo
from .onnx.providers import (
    Place,
    Provider,
    check_session_options,
    first_present,
    places_of,
    provider_of,
)
from .runtime.compiled import CompiledModule, load

if TYPE_CHECKING:
    import onnx
    import tvm

    from .runtime.values import Value

#: onnxruntime's names of element types.
_TYPES = {"float32": "float", "float64": "double"}

_BINDING = "compiled.session() has bind_input and outputs, which are tensors on the device."
#: Methods of onnxruntime's sessions that are absent, with what there is in their place.
_ABSENT = {
    "io_binding": _BINDING,
    "run_with_iobinding": _BINDING,
    "run_with_ort_values": _BINDING,
    "run_async": "compiled.session().run() returns before the GPU has finished.",
    "set_providers": "InferenceSession(..., providers=[...]) makes another session.",
    "get_modelmeta": "onnx.load(path).metadata_props are those of the model.",
    "end_profiling": "convoy trace writes a profile.",
}


@dataclass(frozen=True)
class NodeArg:
    """An input or output: its name, shape, and type such as ``tensor(float)``."""

    name: str
    shape: list[int]
    type: str


class InferenceSession:
    """Run a network by names of inputs and outputs, like onnxruntime. Not thread-safe.

    Args:
        path_or_bytes: File written by ``export_library`` (``.so``), a model file (ONNX, Relay), an
            ONNX model (bytes or loaded) or Relax module to build, or a compiled module.
        sess_options: An ``onnxruntime.SessionOptions``. Its threads, logging and optimizations are
            onnxruntime's own and have no effect.
        providers: Where to run, best first: ``CUDAExecutionProvider``, ``CPUExecutionProvider``,
            alone or with a dictionary of options, of which ``device_id`` counts. The first that
            this machine has is used.
        provider_options: Those dictionaries, one for each provider.
        target: "cuda" or "llvm" in place of providers (default: cuda if there is a GPU).
        shapes: Shapes of inputs by name, for axes that a model leaves open.
        batch: The size of a first axis that is open.
        constants: Values of inputs of an ONNX model by name, which become constants.
        options: Keyword arguments of :func:`convoy.build`.

    Raises:
        InvalidOption: Options were given for a compiled module, or options of onnxruntime that
            Convoy does not have; also the errors of :func:`convoy.load`, of reading a model and of
            :func:`convoy.build`.
        NoGpu: Only providers for a GPU are given, and there is none.
    """

    def __init__(
        self,
        path_or_bytes: str
        | os.PathLike[str]
        | bytes
        | CompiledModule
        | tvm.IRModule
        | onnx.ModelProto,
        sess_options: Any = None,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        target: str = "",
        shapes: Mapping[str, Sequence[int]] | None = None,
        batch: int | None = None,
        constants: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        check_session_options(sess_options)
        places = places_of(providers, provider_options)
        if target and places:
            raise InvalidOption("providers= and target=", "one of both")
        module = _compiled_module(path_or_bytes)
        reading = {"shapes": shapes, "batch": batch, "constants": constants}
        if module is None:
            place = Place(target) if target else first_present(places, _has_gpu)
            self._compiled = _build(path_or_bytes, place.target, reading, options)
        else:
            shared = {"target": target, **reading}
            if named := [name for name, value in shared.items() if value] + list(options):
                raise InvalidOption(
                    f"{named[0]}= for a module that is compiled", "a model to build"
                )
            self._compiled, place = module, _place_of(module, places)
        self._session = self._compiled.session(_device(self._compiled.meta.target, place.index))

    def __getattr__(self, name: str) -> NoReturn:
        if name in _ABSENT:
            raise InvalidOption(
                f"InferenceSession.{name}", "get_inputs, get_outputs, get_providers or run",
                _ABSENT[name],
            )  # fmt: skip
        raise AttributeError(f"InferenceSession has no attribute {name!r}")

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

    def get_providers(self) -> list[str]:
        """The provider that runs the network, by onnxruntime's name."""
        return [provider_of(self._compiled.meta.target)]

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Value],
        run_options: Any = None,
    ) -> list[np.ndarray]:
        """Run the network once and wait for it.

        Args:
            output_names: Outputs to return, in this order; None or empty: all.
            input_feed: An array for each input by name, of its shape and dtype.
            run_options: An ``onnxruntime.RunOptions``, whose logging has no effect.

        Raises:
            InvalidOption: A feed without names, an unknown or missing name, a wrong shape, or a
                dtype that would lose values.
        """
        if not isinstance(input_feed, Mapping):
            raise InvalidOption(f"a feed of type {type(input_feed).__name__}", "arrays by name")
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


def _compiled_module(given: Any) -> CompiledModule | None:
    """The module that is given, or that a ``.so`` holds; None for what is to be built."""
    if isinstance(given, str | os.PathLike) and Path(given).suffix == ".so":
        return load(given)
    return given if isinstance(given, CompiledModule) else None


def _place_of(module: CompiledModule, places: Sequence[Place]) -> Place:
    """Return the place, among those given, that a compiled module was built for."""
    target = module.meta.target
    if not places:
        return Place(target)
    for place in places:
        if place.target == target:
            return place
    name = provider_of(target)
    raise InvalidOption(f"providers without {name}", f"it, for a module built for {target}")


def _has_gpu(index: int) -> bool:
    from .runtime import present_device

    return present_device(index) is not None


def _device(target: str, index: int) -> tvm.runtime.Device:
    import tvm

    return tvm.cuda(index) if target == "cuda" else tvm.cpu()


def _build(
    given: Any, target: str, reading: Mapping[str, Any], options: Mapping[str, Any]
) -> CompiledModule:
    from .pipeline import build

    return build(_module(given, reading), target, **options)


def _module(given: Any, reading: Mapping[str, Any]) -> Any:
    """The Relax module of a model file, of an ONNX model, or as it is given."""
    from .frontend import model_file
    from .frontend.onnx import from_onnx

    if isinstance(given, str | os.PathLike):
        return model_file.read(Path(given), **reading)
    if isinstance(given, bytes) or hasattr(given, "opset_import"):
        return from_onnx(given, **reading)
    if named := [name for name, value in reading.items() if value is not None and value != {}]:
        raise InvalidOption(f"{named[0]}= for a Relax module, which has its own", "a model file")
    return given
