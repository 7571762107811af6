"""TVM's importer of exported programs, with Convoy's converters and a check of each result."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any

import torch
import tvm
from torch._decomp import global_decomposition_table
from torch.export import ExportedProgram
from torch.fx import Node
from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from ..errors import UnsupportedOp
from ..graph.expr import dtype_of, is_tensor, shape_of
from . import operators
from .complex_pairs import RealModule, has_complex
from .constants import Constants
from .distinct import decompose
from .export import straightened
from .higher_order import has_functions
from .layer_names import name_layers
from .masked import select_by_mask
from .refusal import EXPECTED, check_known, check_sizes, is_unknown, refused

#: Rounds of decomposing what decompositions consist of.
_MOST_ROUNDS = 4


def translate(program: ExportedProgram) -> tvm.IRModule:
    """Convert a program whose operators have converters; see :func:`decomposed`."""
    constants, known = Constants(program), _importer(None).convert_map
    check_sizes(node for node in program.graph.nodes if node not in constants)
    others = [n for n in program.graph.nodes if is_unknown(n, known)]
    check_known([node for node in others if node not in constants])
    importer = _importer(constants, {node.target.__name__ for node in others})
    return importer.from_exported_program(program, False, False, True, None)


def decomposed(program: ExportedProgram, table: dict[Any, Callable[..., Any]]) -> ExportedProgram:
    """Decompose operators by ``table``; those without a converter further, as PyTorch can. What
    has functions or complex numbers as arguments is written with other operators."""
    program = decompose(program, table)
    if has_functions(program):
        program = straightened(program, _inputs(program)).run_decompositions(table)
    select_by_mask(program)
    if has_complex(program):
        with torch.no_grad():
            again = torch.export.export(RealModule(program), _inputs(program))
        program = again.run_decompositions(table)
    known = _importer(None).convert_map
    for _ in range(_MOST_ROUNDS):
        more: dict[Any, Callable[..., Any]] = {}
        for node in program.graph.nodes:
            if is_unknown(node, known):
                rule = global_decomposition_table["post_autograd"].get(node.target)
                more |= {node.target: rule} if rule is not None else {}
        if not more:
            break
        table = {**table, **more}
        program = decompose(program, table)
    return program


def _inputs(program: ExportedProgram) -> tuple[torch.Tensor, ...]:
    """Tensors such as those that a program was exported with, where it now expects them."""
    named = {node.name: node.meta["val"] for node in program.graph.find_nodes(op="placeholder")}
    given = [named[name] for name in program.graph_signature.user_inputs]
    return tuple(
        torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device) for x in given
    )


def _importer(constants: Constants | None, computed: Collection[str] = ()) -> Any:
    """TVM's importer with Convoy's converters; operators without one are ``computed``."""
    importer = ExportedProgramImporter()
    importer._convert_pytorch_tensor_to_tvm = _tensor
    own = {
        name: functools.partial(lambda convert, node: convert(node, importer), convert)
        for name, convert in operators.CONVERTERS.items()
    }
    known: dict[str, Any] = {**dict.fromkeys(computed), **importer.convert_map, **own}
    importer.update_convert_map(
        {
            name: functools.partial(_converted, importer, constants, convert)
            for name, convert in known.items()
        }
    )
    return importer


def _tensor(value: torch.Tensor) -> Any:
    """A tensor of TVM. DLPack needs memory aligned to 64 bytes, which slices of checkpoints need
    not have; what TVM's importer does otherwise, by way of NumPy, has no bfloat16."""
    aligned = value.layout != torch.strided or value.data_ptr() % 64 == 0
    return ExportedProgramImporter._convert_pytorch_tensor_to_tvm(
        value if aligned else value.detach().clone()
    )


def _converted(
    importer: Any, constants: Constants | None, convert: Callable[[Node], Any] | None, node: Node
) -> Any:
    value = constants.value(node) if constants is not None else None
    if value is not None:
        return relax.const(importer._convert_pytorch_tensor_to_tvm(value))
    if convert is None:  # of several results, which are looked up one by one
        return None
    name_layers(importer.block_builder, node)
    try:
        return _checked(importer, convert, node)
    except Exception as err:
        raise refused(node, err) from err


def _checked(importer: Any, convert: Callable[[Node], Any], node: Node) -> Any:
    """What a converter makes of a node, in the dtype that PyTorch gives it.

    Raises UnsupportedOp for another shape, which would be another result without a word.
    """
    result, wanted = convert(node), node.meta.get("val")
    if not isinstance(wanted, torch.Tensor) or not isinstance(result, relax.Expr):
        return result
    result = importer.block_builder.normalize(result)
    if not is_tensor(result):
        return result
    if shape_of(result) != tuple(wanted.shape):
        raise UnsupportedOp(
            f"a result of shape {tuple(wanted.shape)}, to which TVM gives {shape_of(result)}",
            EXPECTED,
        )
    dtype = importer._convert_data_type(wanted.dtype)
    if dtype_of(result) == dtype:
        return result
    return importer.block_builder.emit(relax.op.astype(result, dtype))
