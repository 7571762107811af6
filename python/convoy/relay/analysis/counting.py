"""Count what an expression computes: operators, layers, multiply-accumulates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from convoy.errors import DynamicShape
from convoy.relay import ast
from convoy.relay.ast import Expr
from convoy.relay.infer import infer_expr
from convoy.relay.module import IRModule, as_module
from convoy.relay.types import TensorType
from convoy.relay.visit import children, post_order


def op_name(node: Expr) -> str:
    """Return the operator of a call, "" for anything else."""
    return node.op.name if isinstance(node, ast.Call) and isinstance(node.op, ast.Op) else ""


def list_op_freqs(mod: IRModule) -> dict[str, int]:
    """Count the calls of each operator in all functions of a module."""
    found: dict[str, int] = {}
    for function in as_module(mod).functions.values():
        for node in post_order(function):
            if name := op_name(node):
                found[name] = found.get(name, 0) + 1
    return found


def list_fake_quantized_op_freqs(mod: IRModule) -> dict[str, int]:
    """Count the operators between qnn.dequantize and qnn.quantize that integers could compute."""
    found: dict[str, int] = {}
    for function in as_module(mod).functions.values():
        for node in post_order(function):
            if op_name(node) == "qnn.quantize":
                for inner in _quantized_region(node):
                    found[op_name(inner)] = found.get(op_name(inner), 0) + 1
    return found


def _quantized_region(quantize: Expr) -> list[Expr]:
    """Return the calls that a quantize takes from dequantizes alone; none if others come in."""
    assert isinstance(quantize, ast.Call)
    region: dict[Expr, None] = {}
    stack: list[Expr] = [quantize.args[0]]
    while stack:
        node = stack.pop()
        name = op_name(node)
        if node in region or name == "qnn.dequantize" or isinstance(node, (ast.Op, ast.Constant)):
            continue
        if isinstance(node, ast.Var) or name == "qnn.quantize":
            return []
        region[node] = None
        stack.extend(children(node))
    return [node for node in region if op_name(node)]


def count_layers(expr: Expr | IRModule, valid_ops: Sequence[str]) -> int:
    """Return the most calls of certain operators on one path: the depth of a network.

    Args:
        expr: An expression, or a module, of which `main` counts.
        valid_ops: The operators.
    """
    root = expr["main"] if isinstance(expr, IRModule) else expr
    depth: dict[int, int] = {}
    for node in post_order(root):
        inner = max((depth[id(c)] for c in children(node)), default=0)
        depth[id(node)] = inner + (op_name(node) in valid_ops)
    return depth[id(root)]


def get_total_mac_number(expr: Expr) -> int:
    """Count the multiply-accumulates of convolutions and GEMMs in an expression.

    Raises:
        DynamicShape: One of them has an unknown size.
    """
    if any(n.checked_type_ is None for n in post_order(expr) if op_name(n) in _MACS):
        infer_expr(expr)
    calls = [n for n in post_order(expr) if isinstance(n, ast.Call) and op_name(n) in _MACS]
    return sum(_MACS[op_name(call)](call) for call in calls)


def _shape(call: Expr) -> tuple[int, ...]:
    found = call.checked_type
    assert isinstance(found, TensorType)
    if not found.is_static:
        raise DynamicShape(f"multiply-accumulates of a {found}", "known sizes")
    return found.concrete_shape


def _axes(layout: str, shape: Sequence[int]) -> dict[str, int]:
    """Return the size of each axis; a blocked axis counts whole: NCHW8c has C of 8 times its C."""
    sizes: dict[str, int] = {}
    position = 0
    for letter in layout:
        if letter.isdigit():
            continue
        size = shape[position]
        position += 1
        sizes[letter.upper()] = sizes.get(letter.upper(), 1) * size
    return sizes


def _convolution(call: ast.Call) -> int:
    """Each output element reads one kernel window of the input channels of its group."""
    assert call.attrs is not None
    kernel = _axes(call.attrs.kernel_layout, _shape(call.args[1]))
    window = math.prod(size for axis, size in kernel.items() if axis not in "OI")
    return math.prod(_shape(call)) * kernel["I"] * window


def _transposed(call: ast.Call) -> int:
    """Each input element is written to one window of the output channels of its group."""
    assert call.attrs is not None
    kernel = _axes(call.attrs.kernel_layout, _shape(call.args[1]))
    window = math.prod(size for axis, size in kernel.items() if axis not in "OI")
    inputs = _axes(call.attrs.data_layout, _shape(call.args[0]))["C"]
    return math.prod(_shape(call)) * inputs // int(call.attrs.groups) * window


def _gemm(call: ast.Call) -> int:
    """Count m * n * k: the output times the axis that is summed over."""
    data = _shape(call.args[0])
    turned = call.attrs is not None and bool(call.attrs.get("transpose_a", False))
    return math.prod(_shape(call)) * data[-2 if turned else -1]


_MACS: dict[str, Callable[[ast.Call], int]] = {
    **dict.fromkeys(
        ("nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.contrib_conv2d_NCHWc", "qnn.conv2d"),
        _convolution,
    ),
    **dict.fromkeys(
        ("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose"), _transposed
    ),
    **dict.fromkeys(("nn.dense", "nn.matmul", "nn.batch_matmul", "qnn.dense"), _gemm),
}
