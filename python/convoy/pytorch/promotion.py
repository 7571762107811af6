"""PyTorch's type promotion, written out as casts.

TVM's importer gives a number the dtype of the tensor beside it: ``i + 0.5`` of integers was ``i``,
and ``x + 1e-8`` of float16 was ``x``.
"""

from __future__ import annotations

import math
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
            numbers = (*node.args, *node.kwargs.values())
            if name in _ARITHMETIC and any(_is_beyond(x, made) for x in numbers):
                dtype = torch.float32
                _cast_result(node, dtype)
        for operand in operands:
            if not _is_tensor(operand) or operand.meta["val"].dtype == dtype:
                continue
            with graph.inserting_before(node):
                cast = graph.call_function(
                    torch.ops.aten._to_copy.default, (operand,), {"dtype": dtype}
                )
            cast.meta["val"] = operand.meta["val"].to(dtype)
            node.replace_input_with(operand, cast)


def _cast_result(node: torch.fx.Node, dtype: torch.dtype) -> None:
    """Let a node compute in a dtype, and its users read the result in the one that it had."""
    made = node.meta["val"]
    node.meta["val"] = made.to(dtype)
    with node.graph.inserting_after(node):
        cast = node.graph.call_function(torch.ops.aten._to_copy.default, (), {"dtype": made.dtype})
    node.replace_all_uses_with(cast)
    cast.args = (node,)
    cast.meta["val"] = made


def _is_beyond(number: Any, dtype: torch.dtype) -> bool:
    """Whether a dtype's normal numbers end before this one, which PyTorch keeps in float32."""
    if not isinstance(number, (int, float)) or not number or not math.isfinite(number):
        return False
    info = torch.finfo(dtype)
    return not info.tiny <= abs(number) <= info.max


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
