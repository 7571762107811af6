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


@converter("Einsum")
def einsum(call: Call) -> Value:
    """Products of two operands as one batched matrix product; others by TVM."""
    equation = str(call.attrs["equation"]).replace(" ", "")
    if "." in equation:
        return call.make("einsum", [call.expr(value) for value in call.inputs], equation)
    terms, _, out = equation.partition("->")
    if "->" not in equation:
        out = "".join(sorted(a for a in set(terms) - {","} if terms.count(a) == 1))
    if (found := _without_ones(call, terms.split(","), out)) is not None:
        return found
    if len(call.inputs) == 2 and (found := _as_matmul(call, f"{terms}->{out}")) is not None:
        return found
    return call.make("einsum", [call.expr(value) for value in call.inputs], f"{terms}->{out}")


def _without_ones(call: Call, terms: list[str], out: str) -> Value | None:
    """The call without axes of size 1 that broadcast to those of another operand, if any."""
    shapes = [call.shape(i) for i in range(len(terms))]
    size: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for a, d in zip(term, shape, strict=True):
            size[a] = d if size.get(a, 1) == 1 else size[a]
    kept = [
        [i for i, a in enumerate(term) if shape[i] == size[a]]
        for term, shape in zip(terms, shapes, strict=True)
    ]
    if all(len(axes) == len(term) for axes, term in zip(kept, terms, strict=True)):
        return None
    values = [
        call.reshape(value, [shape[i] for i in axes])
        for value, shape, axes in zip(call.inputs, shapes, kept, strict=True)
    ]
    left = ",".join("".join(t[i] for i in axes) for t, axes in zip(terms, kept, strict=True))
    return call.do("Einsum", *values, equation=f"{left}->{out}")


def _as_matmul(call: Call, equation: str) -> Value | None:
    """(batch, rows, inner) x (batch, inner, columns), where axes are of these kinds."""
    terms, out = equation.split("->")
    left, right = terms.split(",")
    if any(len(set(term)) != len(term) for term in (left, right, out)):
        return None
    batch = [a for a in left if a in right and a in out]
    inner = [a for a in left if a in right and a not in out]
    rows = [a for a in left if a not in right and a in out]
    columns = [a for a in right if a not in left and a in out]
    if len(batch) + len(inner) + len(rows) != len(left):
        return None
    if len(batch) + len(inner) + len(columns) != len(right):
        return None
    size = dict(zip(left, call.shape(0), strict=True)) | dict(
        zip(right, call.shape(1), strict=True)
    )

    def arranged(index: int, term: str, *groups: list[str]) -> Value:
        order = [term.index(a) for group in groups for a in group]
        moved = call.do("Transpose", call.value(index), perm=order)
        return call.reshape(moved, [int(np.prod([size[a] for a in g])) for g in groups])

    product = call.do(
        "MatMul", arranged(0, left, batch, rows, inner), arranged(1, right, batch, inner, columns)
    )
    have = [*batch, *rows, *columns]
    product = call.reshape(product, [size[a] for a in have])
    return call.do("Transpose", product, perm=[have.index(a) for a in out]) if have else product


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
