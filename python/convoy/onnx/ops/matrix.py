"""Matrix products."""

from __future__ import annotations

import numpy as np

from ..call import Call, Value, converter


@converter("MatMul")
def matmul(call: Call) -> Value:
    return call.make("matmul", call.x(0), call.x(1))


@converter("Gemm")
def gemm(call: Call) -> Value:
    """alpha * A * B + beta * C."""
    a, b = call.value(0), call.value(1)
    if call.attrs.get("transA", 0):
        a = call.do("Transpose", a, perm=(1, 0))
    if call.attrs.get("transB", 0):
        b = call.do("Transpose", b, perm=(1, 0))
    alpha, beta = call.attrs.get("alpha", 1.0), call.attrs.get("beta", 1.0)
    result = call.do("MatMul", a, b)
    if alpha != 1.0:
        result = call.do("Mul", result, call.const(alpha))
    if not call.has(2) or beta == 0.0:
        return result
    c = call.value(2)
    return call.do("Add", result, c if beta == 1.0 else call.do("Mul", c, call.const(beta)))


@converter("Det")
def determinant(call: Call) -> Value:
    """By expansion along the first row, for matrices of up to 4 x 4."""
    n = call.shape()[-1]
    if n > 4:
        raise call.unsupported(f"of {n} x {n} matrices", "up to 4 x 4")

    def entry(row: int, column: int) -> Value:
        rows = call.do("Gather", call.value(0), np.array(row), axis=call.rank() - 2)
        return call.do("Gather", rows, np.array(column), axis=call.rank() - 2)

    def minor(row: int, columns: tuple[int, ...]) -> Value:
        if len(columns) == 1:
            return entry(row, columns[0])
        total = None
        for i, column in enumerate(columns):
            rest = (*columns[:i], *columns[i + 1 :])
            term = call.do("Mul", entry(row, column), minor(row + 1, rest))
            if total is None:
                total = term
            else:
                total = call.do("Sub" if i % 2 else "Add", total, term)
        return total

    return minor(0, tuple(range(n)))
