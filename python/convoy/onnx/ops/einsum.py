"""Einstein summation by sums over axes, products of elements and batched matrix products."""

from __future__ import annotations

import math
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np

from ...errors import InvalidModel
from ..call import Call, Value, converter


@converter("Einsum")
def einsum(call: Call) -> Value:
    """Operands are multiplied from left to right, each without the axes that nothing behind it
    needs."""
    terms, out = _labels(call)
    sizes = _sizes(call, terms)
    value, term = _operand(call, 0, terms[0], sizes)
    for index in range(1, len(terms)):
        needed = {*out, *"".join(terms[index + 1 :])}
        other = _operand(call, index, terms[index], sizes)
        value, term = _product(call, (value, term), other, needed, sizes)
    value, term = _summed(call, value, term, set(out))
    if missing := [a for a in out if a not in term]:  # of size 1 in every operand
        value = call.reshape(value, [*(sizes[a] for a in term), *[1] * len(missing)])
        term += "".join(missing)
    return _ordered(call, value, term, out)


def _labels(call: Call) -> tuple[list[str], str]:
    """A letter for each axis of each operand, and of the result; of "..." too."""
    equation = str(call.attrs["equation"])
    given, arrow, out = equation.replace(" ", "").partition("->")
    terms, ranks = given.split(","), [call.rank(i) for i in range(len(call.inputs))]
    letters = given.replace("...", "").replace(",", "")
    if not arrow:
        out = "..." + "".join(sorted(a for a, n in Counter(letters).items() if n == 1))
    rest = out.replace("...", "")
    if len(terms) != len(ranks) or not set(letters + rest) <= set(string.ascii_letters):
        raise _invalid(call, f"{len(ranks)} operands", "one term of letters for each operand")
    if len(set(rest)) != len(rest) or not set(rest) <= set(letters):
        raise _invalid(call, "", "a result of different letters that stand on the left")
    spare = "".join(a for a in string.ascii_letters if a not in letters)
    open_axes = [rank - len(t.replace("...", "")) for t, rank in zip(terms, ranks, strict=True)]
    if any(n < 0 or (n and "..." not in t) for t, n in zip(terms, open_axes, strict=True)):
        raise _invalid(call, f"operands of {ranks} axes", "a letter for each axis")
    most = max(open_axes)
    named = [
        t.replace("...", spare[most - n : most]) for t, n in zip(terms, open_axes, strict=True)
    ]
    return named, out.replace("...", spare[:most])


def _sizes(call: Call, terms: Sequence[str]) -> dict[str, int]:
    """The size of each axis: an axis of size 1 is broadcast to that of another operand."""
    sizes: dict[str, int] = {}
    for index, term in enumerate(terms):
        for axis, size in zip(term, call.shape(index), strict=True):
            known = sizes.setdefault(axis, size)
            if 1 not in (known, size) and known != size:
                raise _invalid(call, f"axes {axis!r} of sizes {known} and {size}", "equal sizes")
            sizes[axis] = size if known == 1 else known
    return sizes


def _operand(call: Call, index: int, term: str, sizes: dict[str, int]) -> tuple[Value, str]:
    """An operand without axes of size 1, and with one axis for each letter: the diagonal."""
    value, shape = call.value(index), call.shape(index)
    kept = [i for i, size in enumerate(shape) if size != 1]
    if len(kept) != len(shape):
        value = call.reshape(value, [shape[i] for i in kept])
        term = "".join(term[i] for i in kept)
    for axis, count in Counter(term).items():
        for _ in range(count - 1):
            first = term.index(axis)
            second = term.index(axis, first + 1)
            rest = [i for i in range(len(term)) if i not in (first, second)]
            value = call.do("Transpose", value, perm=[*rest, first, second])
            term, n = "".join(term[i] for i in rest) + axis, sizes[axis]
            value = call.reshape(value, [*(sizes[a] for a in term[:-1]), n * n])
            value = call.do("Gather", value, np.arange(n) * (n + 1), axis=len(term) - 1)
    return value, term


def _product(
    call: Call,
    one: tuple[Value, str],
    other: tuple[Value, str],
    needed: set[str],
    sizes: dict[str, int],
) -> tuple[Value, str]:
    """The product of two operands, summed over the axes that are not ``needed``: (batch, rows,
    inner) x (batch, inner, columns)."""
    (a, left), (b, right) = (
        _summed(call, value, term, needed | set(beside))
        for (value, term), (_, beside) in ((one, other), (other, one))
    )
    batch = "".join(axis for axis in left if axis in right and axis in needed)
    inner = "".join(axis for axis in left if axis in right and axis not in needed)
    rows, columns = ("".join(x for x in term if x not in batch + inner) for term in (left, right))

    def arranged(value: Value, term: str, *groups: str) -> Value:
        moved = _ordered(call, value, term, "".join(groups))
        return call.reshape(moved, [math.prod(sizes[axis] for axis in g) for g in groups])

    # Without an inner axis this is a product of elements.
    result = call.do(
        "MatMul" if inner else "Mul",
        arranged(a, left, batch, rows, inner),
        arranged(b, right, batch, inner, columns),
    )
    term = batch + rows + columns
    return call.reshape(result, [sizes[axis] for axis in term]), term


def _summed(call: Call, value: Value, term: str, needed: set[str]) -> tuple[Value, str]:
    """A value summed over the axes that are not needed."""
    axes = [i for i, axis in enumerate(term) if axis not in needed]
    if not axes:
        return value, term
    value = call.do("ReduceSum", value, np.array(axes), keepdims=0)
    return value, "".join(axis for axis in term if axis in needed)


def _ordered(call: Call, value: Value, term: str, wanted: str) -> Value:
    """A value with its axes in another order."""
    if term == wanted:
        return value
    return call.do("Transpose", value, perm=[term.index(axis) for axis in wanted])


def _invalid(call: Call, got: str, expected: str) -> InvalidModel:
    where = f"ONNX operator {call.op} ({call.name!r}) of {call.attrs['equation']!r}"
    return InvalidModel(f"{where}{got and f' with {got}'}", expected)
