"""Whether attention alone reads a value, in place as a view: queries, keys and values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from tvm import relax

from ..graph.expr import op_name, rank_of, relax_ops
from ..graph.rewriter import result_of, used_vars

#: Operators that may be between a linear layer and a product of attention.
_BETWEEN = relax_ops(
    """
    reshape permute_dims astype multiply divide nn.layer_norm nn.rms_norm broadcast_to
    strided_slice split take
    """
)

#: The variables that are computed from a variable; None where the function returns it.
Readers = Mapping[relax.Var, Sequence[relax.Var | None]]


def readers_of(func: relax.Function, values: Mapping[relax.Var, relax.Expr]) -> Readers:
    readers: dict[relax.Var, list[relax.Var | None]] = defaultdict(list)
    for var, value in values.items():
        for used in used_vars(value):
            readers[used].append(var)
    for used in used_vars(result_of(func)):
        readers[used].append(None)
    return readers


def feeds_attention(
    var: relax.Var, values: Mapping[relax.Var, relax.Expr], readers: Readers
) -> bool:
    """Whether everything that reads a variable ends in products of more than two axes."""
    waiting, seen = [var], {var}
    while waiting:
        for reader in readers.get(waiting.pop()) or [None]:
            value = None if reader is None else values[reader]
            if op_name(value) in _BETWEEN or isinstance(value, relax.TupleGetItem):
                if reader not in seen:
                    waiting.append(reader)
                    seen.add(reader)
            elif op_name(value) != "relax.matmul" or rank_of(reader) < 3:
                return False
    return True
