"""Models, and the packages that they are compiled to."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from convoy.errors import InvalidOption
from convoy.graph_executor import GraphExecutorFactoryModule
from convoy.relay import frontend
from convoy.relay.api import parse
from convoy.relay.loading import load_module
from convoy.relay.module import IRModule
from convoy.relay.params import load_param_dict, save_param_dict


class TVMCModel:
    """A network and its parameters.

    Args:
        mod: The module.
        params: Values by name.
        model_path: Of a model that `save` wrote; instead of both.

    Raises:
        InvalidOption: Neither a module nor a path.
    """

    def __init__(
        self,
        mod: IRModule | None = None,
        params: Mapping[str, Any] | None = None,
        model_path: str | os.PathLike[str] | None = None,
    ) -> None:
        if model_path is not None:
            folder = Path(model_path)
            mod = parse((folder / "model.relay").read_text(encoding="utf-8"))
            params = load_param_dict((folder / "model.params").read_bytes())
        if mod is None:
            raise InvalidOption("a model without a module", "mod= and params=, or model_path=")
        self.mod, self.params = mod, dict(params or {})
        self._folder = tempfile.TemporaryDirectory(prefix="convoy-tvmc-")

    def summary(self, file: Any = None) -> None:
        """Print the module."""
        print(self.mod, file=file)

    def save(self, model_path: str | os.PathLike[str]) -> None:
        """Write the module and the parameters into a folder."""
        folder = Path(model_path)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.relay").write_text(self.mod.astext(), encoding="utf-8")
        (folder / "model.params").write_bytes(save_param_dict(self.params))

    def default_tuning_records_path(self) -> str:
        """Return where `tune` writes its results, if it is not told."""
        return os.path.join(self._folder.name, "tuning_records.json")

    def default_package_path(self) -> str:
        """Return where `compile` writes the package, if it is not told."""
        return os.path.join(self._folder.name, "model_package.tar")


class TVMCPackage:
    """A compiled network, read from a file that `compile` wrote.

    Attributes:
        package_path, lib_path: The file.
        module: The built network.
    """

    def __init__(self, package_path: str | os.PathLike[str], project_dir: Any = None) -> None:
        if project_dir is not None:
            raise InvalidOption(
                "project_dir", "package_path", "Convoy compiles for hosts with an OS"
            )
        self.package_path = self.lib_path = os.fspath(package_path)
        found = load_module(self.package_path)
        if not isinstance(found, GraphExecutorFactoryModule):
            raise InvalidOption(f"{self.package_path}, an executable", "a package of compile")
        self.module = found


def load(
    path: str | os.PathLike[str],
    model_format: str | None = None,
    shape_dict: Mapping[str, Sequence[int]] | None = None,
    **kwargs: Any,
) -> TVMCModel:
    """Read a model file.

    Args:
        path: The file.
        model_format: "onnx", "keras", "pytorch", "tflite" or "relay"; default: by the suffix.
        shape_dict: Shapes of inputs by name; needed for PyTorch.
        **kwargs: Further arguments of the importer.

    Raises:
        InvalidOption: A missing file, or a format without an importer.
    """
    file = Path(path)
    if not file.is_file():
        raise InvalidOption(f"model file {file}, which does not exist", "an existing file")
    kind = model_format or _SUFFIXES.get(file.suffix, "")
    if kind == "relay":
        return TVMCModel(parse(file.read_text(encoding="utf-8"), str(file)))
    if kind not in _IMPORTERS:
        known = ", ".join([*_IMPORTERS, "relay"])
        raise InvalidOption(f"model file {file} of format {model_format!r}", f"one of {known}")
    shapes: Any = shape_dict
    if kind == "pytorch":
        if not shape_dict:
            raise InvalidOption("a PyTorch model without shape_dict", "shapes of its inputs")
        shapes = list(shape_dict.items())
    if kind == "keras":
        kwargs.setdefault("layout", "NHWC")
    return TVMCModel(*_IMPORTERS[kind](_content(file, kind), shapes, **kwargs))


load_model = load


def _content(file: Path, kind: str) -> Any:
    """Read a file into what the importer of its format takes."""
    if kind == "onnx":
        import onnx

        return onnx.load(str(file))
    if kind == "keras":
        import keras

        return keras.models.load_model(str(file))
    if kind == "pytorch":
        import torch

        return torch.jit.load(str(file), map_location="cpu").eval()
    return file.read_bytes()


_IMPORTERS: dict[str, Callable[..., tuple[IRModule, dict[str, Any]]]] = {
    "onnx": frontend.from_onnx,
    "keras": frontend.from_keras,
    "pytorch": frontend.from_pytorch,
    "tflite": frontend.from_tflite,
}
_SUFFIXES = {
    ".onnx": "onnx",
    ".h5": "keras",
    ".keras": "keras",
    ".pth": "pytorch",
    ".pt": "pytorch",
    ".zip": "pytorch",
    ".tflite": "tflite",
    ".relay": "relay",
}
