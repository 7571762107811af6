"""Workloads of attention with operands in the layouts that networks have."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from convoy.ir.attention import Attention, RowView
from convoy.ir.workload import Workload

LAYOUTS = ("bhsd", "bshd", "packed")


def workload(
    batches: int = 1,
    heads: int = 2,
    queries: int = 17,
    keys: int | None = None,
    dim: int = 16,
    value_dim: int | None = None,
    *,
    layout: str = "bhsd",
    bias: tuple[int, int, int, int] | None = None,
    bias_dtype: str | None = None,
    causal: bool = False,
    zeros: bool = False,
    outer: int = 1,
    scale: float | None = None,
    dtype: str = "float16",
) -> Workload:
    """Attention of ``outer * batches`` batches.

    Args:
        layout: Rows of a head follow each other ("bhsd"), heads of a row do ("bshd"), or q, k and
            v are parts of one tensor of as many rows as there are queries ("packed").
        bias: Extents over outer, batch, head and query, each 1 or whole.
    """
    keys, value_dim = keys or queries, value_dim or dim
    n = outer * batches
    if layout == "packed":
        row = heads * (2 * dim + value_dim)
        views = [
            _rows((n * queries, row), offset, batches, part, row, queries)
            for offset, part in ((0, dim), (heads * dim, dim), (2 * heads * dim, value_dim))
        ]
        views.append(_bshd(n, batches, heads, queries, value_dim))
    else:
        make = _bhsd if layout == "bhsd" else _bshd
        sizes = ((queries, dim), (keys, dim), (keys, value_dim), (queries, value_dim))
        views = [make(n, batches, heads, rows, size) for rows, size in sizes]
    bias_view = RowView()
    if bias is not None:
        strides = [math.prod((*bias[i + 1 :], keys)) * (bias[i] > 1) for i in range(4)]
        bias_view = RowView((*bias, keys), 0, tuple(strides))  # type: ignore[arg-type]
    attention = Attention(
        *views,
        bias=bias_view,
        bias_dtype=bias_dtype or dtype,
        scale=scale if scale is not None else 1 / math.sqrt(dim),
        causal=causal,
        zeros=zeros,
        outer=outer,
    )
    return Workload(
        "attention", n, queries, keys, heads * dim, heads * value_dim, 1, 1,
        groups=heads, dtype=dtype, out_dtype=dtype, attention=attention,
    )  # fmt: skip


def _rows(
    shape: tuple[int, int], offset: int, batches: int, head: int, row: int, rows: int
) -> RowView:
    return RowView(shape, offset, (batches * rows * row, rows * row, head, row))


def _bhsd(n: int, batches: int, heads: int, rows: int, size: int) -> RowView:
    batch = heads * rows * size
    return RowView((n, heads, rows, size), 0, (batches * batch, batch, rows * size, size))


def _bshd(n: int, batches: int, heads: int, rows: int, size: int) -> RowView:
    row = heads * size
    return RowView((n, rows, heads, size), 0, (batches * rows * row, rows * row, size, row))


def random_workload(rng: Any, most: int = 300) -> Workload:
    """Any shape, layout, bias and mask; ``rng`` is a numpy Generator."""

    def one_of(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    outer, batches, heads = (int(rng.integers(1, 4)) for _ in range(3))
    queries, keys = (int(rng.integers(1, most)) for _ in range(2))
    layout = one_of(*LAYOUTS)
    keys = queries if layout == "packed" else keys
    whole = (outer, batches, heads, queries)
    bias = None
    if rng.random() < 0.5:
        bias = tuple(extent if rng.random() < 0.5 else 1 for extent in whole)
    dtype = one_of("float16", "bfloat16")
    return workload(
        batches, heads, queries, keys,
        one_of(16, 24, 32, 40, 64, 72, 80, 96, 128), one_of(None, 8, 32, 64, 128),
        layout=layout, bias=bias, bias_dtype=one_of(dtype, "float32"),
        causal=bool(rng.random() < 0.3), zeros=bool(rng.random() < 0.5), outer=outer,
        dtype=dtype,
    )  # fmt: skip


def operands(workload: Workload, rng: Any, hidden: float = 0.0) -> dict[str, Any]:
    """Random values by name, rounded to the operands' types, as float64.

    ``hidden`` is the share of a bias that is minus infinity.
    """
    found = {}
    for name, shape, dtype in workload.operand_shapes()[:-1]:
        values = rng.standard_normal(shape).astype(np.float32)
        if name == "bias" and hidden:
            values[rng.random(shape) < hidden] = -np.inf
        found[name] = rounded(values, dtype)
    return found


def rounded(values: Any, dtype: str) -> Any:
    from convoy.ir.dtypes import numpy_dtype

    return values.astype(numpy_dtype(dtype)).astype(np.float64)
