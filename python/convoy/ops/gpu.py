"""Operators whose GPU kernels are built as such, not as loops with a schedule."""

from __future__ import annotations

import tvm
from tvm import relax

from ..graph.expr import shape_of
from ..tir import channel_sums
from ..tir.channel_sums import ChannelSums

#: A problem (None: as loops), its activations, and its vectors.
Sums = tuple["ChannelSums | None", list[relax.Expr], list[relax.Expr]]


def on_gpu() -> bool:
    """Whether operators are being legalised for a CUDA target."""
    target = tvm.target.Target.current(allow_none=True)
    return target is not None and target.kind.name == "cuda"


def emit_sums(
    builder: relax.BlockBuilder,
    sums: ChannelSums,
    data: list[relax.Expr],
    vectors: list[relax.Expr],
) -> relax.Expr:
    """Calls of the kernels of ``sums``; a tuple of its (channels,) results."""
    shape = sums.shape
    rows = [x if shape_of(x) == shape else builder.emit(relax.op.reshape(x, shape)) for x in data]
    results = [relax.TensorType((sums.channels,), "float32")] * sums.outputs
    first, *second = channel_sums.kernels(sums)
    callee = builder.add_func(first, sums.name)
    if not second:
        return relax.op.call_tir(callee, [*rows, *vectors], results)
    parts = relax.TensorType(channel_sums.partial_shape(sums), "float32")
    partial = builder.emit(relax.op.call_tir(callee, [*rows, *vectors], parts))
    combine = builder.add_func(second[0], f"{sums.name}_combine")
    return relax.op.call_tir(combine, [rows[0], *vectors, partial], results)
