"""Where subgraphs start: convolutions, their gradients, and GEMMs as Workloads."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tvm import relax

from ...graph.expr import (
    FLOAT_DTYPES,
    dtype_of,
    ints,
    op_name,
    padding_of,
    rank_of,
    shape_of,
)
from ...ir.workload import Workload
from ...ops import DGRAD, DGRAD_3D, WGRAD, conv_workload, forward_workload
from .base import GraphView

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
    """(n, c) x (c, k); the weights become (k, c), which rewrite folds where they are constant."""
    call = binding.value
    if op_name(call) != "relax.matmul":
        return None
    a, b = call.args
    if rank_of(a) != 2 or rank_of(b) != 2 or dtype_of(a) != dtype_of(b):
        return None
    if dtype_of(a) not in FLOAT_DTYPES or dtype_of(binding.var) not in FLOAT_DTYPES:
        return None
    (n, c), (_, k) = shape_of(a), shape_of(b)
    made = graph.value.get(b) if isinstance(b, relax.Var) else None
    if made is not None and op_name(made) == "relax.permute_dims":
        weights = made.args[0]  # the only permutation of two axes that does something
    else:
        weights = relax.op.permute_dims(b, [1, 0])
    workload = Workload(
        "matmul", n, 1, 1, c, k, 1, 1, dtype=dtype_of(a), out_dtype=dtype_of(binding.var)
    )
    return Root(workload, [a, weights])
