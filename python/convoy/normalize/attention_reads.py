"""Whether attention alone reads a value, in place as a view: queries, keys and values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from tvm import relax

from ..graph.expr import op_name, rank_of, relax_ops
from ..graph.function import result_of, used_vars

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

    def passes(reader: relax.Var) -> bool:
        value = values[reader]
        return op_name(value) in _BETWEEN or isinstance(value, relax.TupleGetItem)

    def ends(reader: relax.Var) -> bool:
        return op_name(values[reader]) == "relax.matmul" and rank_of(reader) > 2

    return leads_only_to(var, readers, passes, ends)


def leads_only_to(
    var: relax.Var,
    readers: Readers,
    passes: Callable[[relax.Var], bool],
    ends: Callable[[relax.Var], bool],
) -> bool:
    """Whether everything that reads a variable is one of the ``ends``, or ``passes`` it on to those
    alone."""
    waiting, seen = [var], {var}
    while waiting:
        for reader in readers.get(waiting.pop()) or [None]:
            if reader is None:
                return False
            if passes(reader):
                if reader not in seen:
                    waiting.append(reader)
                    seen.add(reader)
            elif not ends(reader):
                return False
    return True
