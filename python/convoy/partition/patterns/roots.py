"""The roots of subgraphs: convolutions, their gradients, and GEMMs as Workloads."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from tvm import relax

from ...graph.expr import dtype_of, ints, op_name, padding_of, permutation_of, rank_of, shape_of
from ...ir.dtypes import FLOAT_DTYPES, accumulator, math_of
from ...ir.workload import Workload
from ...ops import DGRAD, DGRAD_3D, WGRAD, conv_workload, forward_workload
from .base import GraphView

#: Multiply-adds of matmuls of two activations from which on a library is asked, and the fewest
#: rows, columns and summands of each.
LEAST_WORK, _FEWEST = 2**20, 8
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
        workload = root.workload.flattened
        if workload.dtype == "float32":
            rounding = math_of(graph.precision, workload.op)
            workload = dataclasses.replace(workload, math=rounding)
        root.workload = workload
    return root


def _conv_root(binding: relax.Binding) -> Root | None:
    call = binding.value
    spatial = _CONVOLUTIONS.get(op_name(call))
    if spatial is None:
        return None
    x, w = call.args
    attrs, last = call.attrs, f"N{spatial}C"
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout or last))
    if layouts != (last, f"O{spatial}I", last) or not _computes(binding, x, w):
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


def _computes(binding: relax.Binding, *operands: relax.Expr) -> bool:
    """Return whether a workload may have these dtypes: operands of one float dtype and a float
    result, or int8 and int32."""
    (dtype, *others), result = {dtype_of(value) for value in operands}, dtype_of(binding.var)
    if dtype == "int8":
        return not others and result == "int32"
    return not others and dtype in FLOAT_DTYPES and result in FLOAT_DTYPES


def _gradient_root(binding: relax.Binding) -> Root | None:
    """The gradient of a convolution; it has no epilogue."""
    call = binding.value
    if op_name(call) not in (DGRAD, DGRAD_3D, WGRAD):
        return None
    workload = forward_workload(call)
    return None if workload is None else Root(workload, list(call.args))


def _matmul_root(binding: relax.Binding, graph: GraphView) -> Root | None:
    """(n, c) x (c, k); the weights become (k, c), which rewrite folds where they are constant.

    Matmuls with more axes are those of two activations, since linear layers have two: a GEMM for
    each matrix, or one GEMM. Short ones are left to TVM, which fuses what is around them.
    """
    call = binding.value
    if op_name(call) != "relax.matmul":
        return None
    a, b = call.args
    if min(rank_of(a), rank_of(b)) < 2 or not _computes(binding, a, b):
        return None
    counts = {math.prod(shape_of(value)[:-2]) for value in (a, b, binding.var)}
    if len(counts) > 1:  # one of them is repeated
        return None
    if dtype_of(a) == "int8" and counts != {1}:
        return None
    (count,), (n, c), k = counts, shape_of(a)[-2:], shape_of(b)[-1]
    if rank_of(binding.var) > 2 and (min(n, c, k) < _FEWEST or count * n * c * k < LEAST_WORK):
        return None
    workload = Workload(
        "matmul", n, 1, 1, count * c, count * k, 1, 1,
        groups=count, dtype=dtype_of(a), out_dtype=dtype_of(binding.var),
        acc_dtype=accumulator(dtype_of(a)),
    )  # fmt: skip
    return Root(workload, [a, _transposed(b, graph)])


def _transposed(matrices: relax.Expr, graph: GraphView) -> relax.Expr:
    """The transposes of matrices: what they are the transposes of, where they are that."""
    made = graph.value.get(matrices) if isinstance(matrices, relax.Var) else None
    if made is not None and op_name(made) == "relax.permute_dims":
        before, own = shape_of(made.args[0]), shape_of(matrices)[-2:]
        order = [axis for axis in permutation_of(made) if before[axis] > 1]
        swapped = [*order[:-2], *order[:-3:-1]]
        if len(order) < 2 or (min(own) > 1 and swapped == sorted(order)):
            return made.args[0]
    axes = list(range(rank_of(matrices)))
    return relax.op.permute_dims(matrices, [*axes[:-2], axes[-1], axes[-2]])
