"""Where subgraphs start: convolutions, their gradients, and GEMMs as Workloads."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from tvm import relax

from ...graph.expr import (
    FLOAT_DTYPES,
    dtype_of,
    ints,
    op_name,
    padding_of,
    permutation_of,
    rank_of,
    shape_of,
)
from ...ir.workload import Workload
from ...ops import DGRAD, DGRAD_3D, WGRAD, conv_workload, forward_workload
from .base import GraphView

#: Multiply-adds of a product of two activations from which on a library is asked.
LEAST_WORK = 2**20
_CONVOLUTIONS = {"relax.nn.conv2d": "HW", "relax.nn.conv3d": "DHW"}


@dataclass
class Root:
    """A root's workload without an epilogue, and its operands, which may have other shapes than the
    workload's operands where the elements are the same."""

    workload: Workload
    inputs: list[relax.Expr]


def find_root(binding: relax.Binding, graph: GraphView) -> Root | None:
    """The workload that starts at a binding, if one does."""
    root = _conv_root(binding) or _gradient_root(binding) or _matmul_root(binding, graph)
    if root is not None:
        root.workload = root.workload.flattened
    if root is not None and graph.math == "tf32" and root.workload.dtype == "float32":
        root.workload = dataclasses.replace(root.workload, math="tf32")
    return root


def _conv_root(binding: relax.Binding) -> Root | None:
    call = binding.value
    spatial = _CONVOLUTIONS.get(op_name(call))
    if spatial is None:
        return None
    x, w = call.args
    attrs, last = call.attrs, f"N{spatial}C"
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout or last))
    dtypes = {dtype_of(x), dtype_of(w)}
    if layouts != (last, f"O{spatial}I", last) or len(dtypes) != 1 or not dtypes <= {*FLOAT_DTYPES}:
        return None
    if dtype_of(binding.var) not in FLOAT_DTYPES:
        return None
    axes = len(spatial)
    stride, dilation = (
        ints(value) * (axes if len(value) == 1 else 1) for value in (attrs.strides, attrs.dilation)
    )
    workload = conv_workload(
        "fprop", shape_of(x), shape_of(w)[:-1], stride, padding_of(attrs.padding, axes), dilation,
        int(attrs.groups), dtype_of(x), dtype_of(binding.var),
    )  # fmt: skip
    return Root(workload, [x, w])


def _gradient_root(binding: relax.Binding) -> Root | None:
    """The gradient of a convolution; it has no epilogue."""
    call = binding.value
    if op_name(call) not in (DGRAD, DGRAD_3D, WGRAD):
        return None
    workload = forward_workload(call)
    return None if workload is None else Root(workload, list(call.args))


def _matmul_root(binding: relax.Binding, graph: GraphView) -> Root | None:
    """(n, c) x (c, k); the weights become (k, c), which rewrite folds where they are constant.

    So are products of more axes, if all but the last two have size 1: of two activations, since
    linear layers have two axes. Short ones are left to TVM, which fuses what is around them.
    """
    call = binding.value
    if op_name(call) != "relax.matmul":
        return None
    a, b = call.args
    if not (_is_matrix(a) and _is_matrix(b)) or dtype_of(a) != dtype_of(b):
        return None
    if dtype_of(a) not in FLOAT_DTYPES or dtype_of(binding.var) not in FLOAT_DTYPES:
        return None
    (n, c), k = shape_of(a)[-2:], shape_of(b)[-1]
    if rank_of(binding.var) > 2 and n * c * k < LEAST_WORK:
        return None
    workload = Workload(
        "matmul", n, 1, 1, c, k, 1, 1, dtype=dtype_of(a), out_dtype=dtype_of(binding.var)
    )
    return Root(workload, [a, _transposed(b, graph)])


def _is_matrix(expr: relax.Expr) -> bool:
    return rank_of(expr) >= 2 and math.prod(shape_of(expr)[:-2]) == 1


def _transposed(matrix: relax.Expr, graph: GraphView) -> relax.Expr:
    """The transpose of a matrix: what it is the transpose of, where it is one."""
    made = graph.value.get(matrix) if isinstance(matrix, relax.Var) else None
    if made is not None and op_name(made) == "relax.permute_dims":
        before = shape_of(made.args[0])
        moved = [axis for axis in permutation_of(made) if before[axis] > 1]
        if len(moved) < 2 or moved != sorted(moved):
            return made.args[0]
    axes = list(range(rank_of(matrix)))
    return relax.op.permute_dims(matrix, [*axes[:-2], axes[-1], axes[-2]])
