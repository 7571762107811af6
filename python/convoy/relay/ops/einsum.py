"""Einstein summation."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

from convoy.relay.ast import Call
from convoy.relay.lazy import relax
from convoy.relay.ops.arguments import as_tuple, make_call
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.shapes import broadcast_dim
from convoy.relay.types import Dim, TensorType, Type


@builder("einsum")
def einsum(data: Any, equation: str) -> Call:
    """Evaluate an Einstein summation: "ij,jk->ik".

    Args:
        data: The tensors.
        equation: A term of letters for each tensor; "..." stands for any number of dimensions,
            which broadcast. Without an arrow the result has the dimensions of "...", then the
            letters that occur once, in alphabetical order.
    """
    return make_call("einsum", as_tuple(data), equation=equation)


@type_rule("einsum")
def infer_einsum(call: Inputs) -> Type:
    call.count(1)
    fields = call.tensors(0)
    equation = call.attrs["equation"]
    try:
        terms, out = _terms(equation, [len(f.shape) for f in fields])
    except ValueError as error:
        raise call.error(f"equation '{equation}' of {len(fields)} tensors", str(error)) from None
    sizes: dict[str, Dim] = {}
    for term, field in zip(terms, fields, strict=True):
        for letter, size in zip(term, field.shape, strict=True):
            joined = broadcast_dim(sizes.get(letter, size), size)
            if joined is None:
                raise call.error(f"sizes {sizes[letter]} and {size} of '{letter}'", "one size")
            sizes[letter] = joined
    return TensorType([sizes[c] for c in out], fields[0].dtype)


@converter("einsum")
def convert_einsum(op: OpCall) -> RelaxExpr:
    terms, out = _terms(op.attrs["equation"], [len(t.shape) for t in op.fields(0)])
    return relax.op.einsum(op.unpack(0), f"{','.join(terms)}->{out}")


def _terms(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Return the letters of each tensor and of the result, of "..." as well.

    Args:
        equation: The equation.
        ranks: The numbers of dimensions of the tensors.

    Raises:
        ValueError: An equation that does not fit, with what is expected.
    """
    given, arrow, out = equation.replace(" ", "").partition("->")
    terms = given.split(",")
    letters = given.replace("...", "").replace(",", "")
    if len(terms) != len(ranks) or (letters and not letters.isalpha()):
        raise ValueError("one term of letters for each tensor")
    spare = [c for c in string.ascii_letters if c not in letters]
    counts = [r - len(t.replace("...", "")) for t, r in zip(terms, ranks, strict=True)]
    if any(n < 0 or (n and "..." not in t) for t, n in zip(terms, counts, strict=True)):
        raise ValueError("a letter for each dimension")
    most = max((n for t, n in zip(terms, counts, strict=True) if "..." in t), default=0)
    if not arrow:
        out = "..." + "".join(sorted(c for c in letters if letters.count(c) == 1))
    if not set(out.replace("...", "")) <= set(letters):
        raise ValueError("a result of letters that stand on the left")
    pairs = zip(terms, counts, strict=True)
    named = [t.replace("...", "".join(spare[most - n : most])) for t, n in pairs]
    return named, out.replace("...", "".join(spare[:most]))
