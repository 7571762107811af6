"""Models that can be benchmarked: model files, exported programs of PyTorch, compiled modules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DynamicShape, InvalidModel, InvalidOption
from ..frontend import model_file
from ..paths import check_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch
    import tvm

EXPORTED = ".pt2"
COMPILED = ".so"


def read(
    path: Path,
    params: Path | None = None,
    batch: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    outputs: Sequence[str] | None = None,
    constants: Mapping[str, Any] | None = None,
) -> tvm.IRModule:
    """Read a model file or a program of ``torch.export.save``, its parameters bound.

    Raises:
        InvalidOption, DynamicShape, InvalidModel: As :func:`convoy.frontend.model_file.read`.
        UnsupportedOp: As :func:`convoy.compile`, for a program.
    """
    if path.suffix != EXPORTED:
        return model_file.read(path, params, batch, shapes, outputs, constants)
    given = {"--params": params, "--shape": shapes, "--end": outputs, "--constant": constants}
    if named := [name for name, value in given.items() if value]:
        raise InvalidOption(
            f"{named[0]} for an exported program", "--batch alone, for what it leaves open"
        )
    return _imported(exported_program(path), batch)


def exported_program(path: Path) -> torch.export.ExportedProgram:
    """Load a program of ``torch.export.save``, which executes code from it: PyTorch unpickles parts
    of the file. Raises InvalidOption, InvalidModel."""
    check_file(path, "model file")
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


def _imported(program: torch.export.ExportedProgram, batch: int | None) -> tvm.IRModule:
    """Convert a program, exported anew where it leaves sizes open: the first ones are the batch,
    others those of its example inputs.

    Raises:
        DynamicShape: The batch is open, and none is given.
        InvalidOption: The program was exported with another batch.
    """
    import torch
    from torch.utils import _pytree as pytree

    from ..pytorch.importer import to_relax

    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    inputs = [nodes[name].meta["val"] for name in program.graph_signature.user_inputs]
    is_open = [
        [isinstance(size, torch.SymInt) for size in getattr(value, "shape", ())] for value in inputs
    ]
    if batch is None and any(axes[:1] == [True] for axes in is_open):
        raise DynamicShape(
            "an exported program with an open first size", "a number", "Give it with --batch."
        )
    fixed = [value.shape[0] for value, axes in zip(inputs, is_open, strict=True) if axes]
    if batch is not None and fixed and not is_open[0][0] and fixed[0] != batch:
        raise InvalidOption(
            f"--batch {batch} for a program exported with {fixed[0]}",
            "a program exported with torch.export.Dim for its first size",
        )
    if any(map(any, is_open)):
        examples, structure = pytree.tree_flatten(program.example_inputs)
        given = [
            torch.zeros((batch, *x.shape[1:]), dtype=x.dtype) if axes[:1] == [True] else x
            for x, axes in zip(examples, is_open, strict=True)
        ]
        args, kwargs = pytree.tree_unflatten(given, structure)
        program = torch.export.export(program.module(), args, kwargs)
    return to_relax(program)
