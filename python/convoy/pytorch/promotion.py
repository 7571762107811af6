"""PyTorch's type promotion, written out as casts.

TVM's importer gives a number the dtype of the tensor beside it: ``i + 0.5`` of integers was ``i``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram

_ARITHMETIC = {"add", "sub", "rsub", "mul", "div", "pow", "remainder", "fmod", "floor_divide"}
_COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge"}
_OTHERS = {"maximum", "minimum", "atan2", "clamp", "clamp_min", "clamp_max", "where"}
_PROMOTED = _ARITHMETIC | _COMPARISONS | _OTHERS | {"cat"}
_CONVERSIONS = {"_to_copy", "clone", "copy"}


def promote(program: ExportedProgram) -> None:
    """Cast the operands of arithmetic, comparisons and concatenation to the dtype that PyTorch
    computes in."""
    graph = program.graph
    for node in list(graph.nodes):
        packet = getattr(node.target, "overloadpacket", None)
        name = packet.__name__ if packet is not None else ""
        if node.op != "call_function" or name in _CONVERSIONS:
            continue
        if name not in _PROMOTED and not _makes_floats(node):
            continue
        operands = _operands(name, node)
        dtype = _common(operands)
        made = node.meta["val"].dtype
        if name not in _COMPARISONS and made.is_floating_point:
            dtype = made  # of a quotient of integers, too
        for operand in operands:
            if not _is_tensor(operand) or operand.meta["val"].dtype == dtype:
                continue
            with graph.inserting_before(node):
                cast = graph.call_function(
                    torch.ops.aten._to_copy.default, (operand,), {"dtype": dtype}
                )
            cast.meta["val"] = operand.meta["val"].to(dtype)
            node.replace_input_with(operand, cast)


def _operands(name: str, node: torch.fx.Node) -> Any:
    if name == "cat":
        return node.args[0]
    return node.args[1:] if name == "where" else node.args[:3]


def _makes_floats(node: torch.fx.Node) -> bool:
    """Whether it is a function of each element, such as a sine, whose results are floats."""
    made = node.meta.get("val")
    pointwise = torch.Tag.pointwise in getattr(node.target, "tags", ())
    return pointwise and isinstance(made, torch.Tensor) and made.is_floating_point()


def _common(operands: Any) -> torch.dtype:
    """The dtype in which an operator of these operands computes."""
    values = [x.meta["val"] if _is_tensor(x) else x for x in operands if x is not None]
    dtype = torch.result_type(values[0], values[-1])
    for value in values[1:-1]:
        dtype = torch.promote_types(dtype, torch.result_type(values[0], value))
    return dtype


def _is_tensor(operand: Any) -> bool:
    return isinstance(operand, torch.fx.Node) and isinstance(operand.meta["val"], torch.Tensor)
