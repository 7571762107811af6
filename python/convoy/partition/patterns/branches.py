"""Convolutions side by side: parallel branches that read the same value as one convolution.

Convolutions of one input with filters of one shape, and what follows them fused alike, differ only
in their filters. One convolution with all filters behind each other computes all of them, and its
result is cut along the channels. One launch instead of several, and the input is read once; but a
part that is needed as a tensor of its own is copied, so whether it pays is decided by cost.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence

from tvm import relax

from ...graph.function import used_vars
from .base import GraphView, Pattern, Site, fitted
from .chain import Chain
from .epilogue import extended, with_epilogue
from .roots import Root, find_root

#: A convolution or GEMM, with its epilogues from none to the longest.
Member = tuple[Root, list[Chain]]
#: Of up to so many parallel convolutions every subset is a site, of more only all of them.
MOST_SUBSETS = 4


class Branches(Pattern):
    """Two or more forward convolutions or GEMMs of one input, with constant weights and the same
    bias and activation; without residual and groups."""

    name = "branches"
    optional = False

    def sites(self, graph: GraphView) -> Iterator[Site]:
        together: dict[Hashable, list[Member]] = defaultdict(list)
        for binding in graph.bindings:
            root = find_root(binding, graph)
            if root is not None and _can_join(root):
                key = (root.inputs[0], dataclasses.replace(root.workload, k=1))
                together[key].append((root, _chains(graph, binding.var)))
        for members in together.values():
            for subset in _subsets(members):
                if (site := _joined(subset)) is not None:
                    yield site


def _can_join(root: Root) -> bool:
    workload, (x, w) = root.workload, root.inputs
    return (
        workload.op in ("fprop", "matmul")
        and workload.groups == 1
        and isinstance(x, relax.Var)
        and not used_vars(w)
    )


def _chains(graph: GraphView, var: relax.Var) -> list[Chain]:
    """Return the convolution with each epilogue that can be fused, shortest first, without
    residuals."""
    chains = [Chain([var], var)]
    while (longer := extended(graph, chains[-1])) is not None and longer.residual is None:
        if longer.bias is not None and used_vars(longer.bias):
            break
        chains.append(longer)
    return chains


def _subsets(members: Sequence[Member]) -> Iterator[tuple[Member, ...]]:
    """Yield all of them first, then smaller ones."""
    least = 2 if len(members) <= MOST_SUBSETS else len(members)
    for size in range(len(members), max(least, 2) - 1, -1):
        yield from itertools.combinations(members, size)


def _joined(members: Sequence[Member]) -> Site | None:
    """Return the site of members with the longest epilogue that all of them have."""
    by_epilogue = [{chain.epilogue: chain for chain in chains} for _, chains in members]
    shared = [e for e in by_epilogue[0] if all(e in other for other in by_epilogue[1:])]
    if not shared:
        return None
    chains = [found[shared[-1]] for found in by_epilogue]
    roots = [root for root, _ in members]
    split = tuple(root.workload.k for root in roots)
    together = dataclasses.replace(roots[0].workload, k=sum(split))
    workload = with_epilogue(together, chains[0])
    inputs = [roots[0].inputs[0], _behind_each_other([root.inputs[1] for root in roots])]
    if shared[-1].bias:
        inputs.append(_behind_each_other([c.bias for c in chains if c.bias is not None]))
    covered = [var for chain in chains for var in chain.covered]
    outputs = tuple(chain.end for chain in chains)
    return Site(tuple(covered), outputs, workload, fitted(inputs, workload), split)


def _behind_each_other(parts: Sequence[relax.Expr]) -> relax.Expr:
    """Concatenate constants along their first axis; computed once the site is taken (rewrite)."""
    return relax.op.concat(list(parts), axis=0)
