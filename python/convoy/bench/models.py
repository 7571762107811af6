"""Models that can be benchmarked: model files, exported programs of PyTorch, compiled modules."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DynamicShape, InvalidModel, InvalidOption
from ..frontend import model_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch
    import tvm

EXPORTED = ".pt2"
COMPILED = ".so"


@dataclass(frozen=True)
class Network:
    """A Relax module with the values of those of its parameters that are not bound."""

    mod: tvm.IRModule
    params: dict[str, object] | None = None


def read(
    path: Path,
    params: Path | None = None,
    batch: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Network:
    """Read a model file or a program of ``torch.export.save``.

    Raises:
        InvalidOption, DynamicShape, InvalidModel: As :func:`convoy.frontend.model_file.read`.
    """
    if path.suffix == EXPORTED:
        if params is not None:
            raise InvalidOption("--params for an exported program", "none: it has its weights")
        if shapes:
            raise InvalidOption(
                "--shape for an exported program", "--batch for what it leaves open"
            )
        return _imported(exported_program(path), path, batch)
    return Network(model_file.read(path, params, batch, shapes))


def exported_program(path: Path) -> torch.export.ExportedProgram:
    """Load a program of ``torch.export.save``. Raises InvalidOption, InvalidModel."""
    if not path.is_file():
        raise InvalidOption(f"model file {path}, which does not exist", "an existing file")
    try:
        import torch
    except ImportError as err:
        raise InvalidOption(
            f"a program of torch.export without PyTorch ({err})", "torch", "pip install torch"
        ) from None
    try:
        return torch.export.load(str(path))
    except Exception as err:  # any error of the archive reader and the unpickler
        raise InvalidModel(
            f"{path}, which torch.export.load cannot read ({err})", "a file of torch.export.save"
        ) from err


def _imported(program: Any, path: Path, batch: int | None) -> Network:
    from tvm.relax.frontend import detach_params
    from tvm.relax.frontend.torch import from_exported_program

    from ..graph.bind import straight_line
    from ..normalize.name_layers import NameLayers

    try:
        mod = from_exported_program(
            program, keep_params_as_input=True, unwrap_unit_return_tuple=True
        )
    except Exception as err:  # any error of an operator's converter
        raise InvalidModel(
            f"{path}, which TVM's PyTorch importer does not convert ({type(err).__name__}: {err})",
            "a program that it converts",
        ) from err
    mod, found = detach_params(mod)
    mod = _with_batch(mod, batch)
    signature = program.graph_signature
    return Network(NameLayers(signature.inputs_to_parameters)(straight_line(mod)), found)


def _with_batch(mod: tvm.IRModule, batch: int | None) -> tvm.IRModule:
    """The module for a batch size, where the program leaves it open. Raises for any other."""
    import tvm
    from tvm import relax

    func = mod["main"]
    data = func.params[0].ty.shape.values
    if data and isinstance(data[0], tvm.tirx.Var):
        if batch is None:
            raise DynamicShape(
                f"an exported program whose {func.params[0].name!r} has an open first size",
                "a number",
                "Give it with --batch.",
            )
        return relax.transform.BindSymbolicVars({data[0]: batch}, "main")(mod)
    if batch is not None and data and int(data[0]) != batch:
        raise InvalidOption(
            f"--batch {batch} for a program exported with {int(data[0])}",
            "a program exported with torch.export.Dim for its first size",
        )
    return mod
