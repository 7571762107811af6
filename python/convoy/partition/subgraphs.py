"""Subgraphs: the parts of a normal-form graph that a backend can take over, each as a Workload.

They are what the registered patterns find (``partition.patterns``). Subgraphs overlap; those of one
root are alternatives, longest first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import tvm
from tvm import relax

from ..graph.rewriter import main_function
from ..ir.workload import Workload
from ..normalize.normal_form import POLICY_ATTR
from . import patterns
from .patterns.base import GraphView, Site, why_illegal


@dataclass(frozen=True)
class Subgraph:
    """One root with operations around it.

    ``id`` is unique in its graph; ``root`` is the variable by which alternatives are known, such
    as that of the convolution; ``covered`` are the variables whose bindings it replaces, in program
    order; ``outputs`` the variables that it produces, in the workload's order; ``inputs``
    the operands in the workload's order, expressions over the graph's other variables and
    constants. An ``optional`` one may as well be left to TVM's own kernels.

    One that is ``split`` computes several roots at once: its result is cut along the last axis into
    parts of these sizes, its outputs. It has a root of its own, because it is an alternative to
    subgraphs of several roots.
    """

    id: str
    root: str
    covered: tuple[str, ...]
    outputs: tuple[str, ...]
    workload: Workload
    inputs: tuple[relax.Expr, ...] = field(compare=False, repr=False)
    optional: bool = False
    split: tuple[int, ...] = ()


class Subgraphs(Sequence[Subgraph]):
    """All subgraphs of a graph: roots in program order, of each root the longest first.

    ``illegal`` are sites (pattern and root) that cannot be taken out of the graph, with the reason.
    """

    def __init__(
        self, subgraphs: Sequence[Subgraph], illegal: Sequence[tuple[str, str]] = ()
    ) -> None:
        self._all, self.illegal = list(subgraphs), tuple(illegal)
        self.by_id = {subgraph.id: subgraph for subgraph in self._all}
        self.by_root: dict[str, list[Subgraph]] = defaultdict(list)
        for subgraph in self._all:
            self.by_root[subgraph.root].append(subgraph)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self._all[index]

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Subgraph]:
        return iter(self._all)


def find_subgraphs(mod: tvm.IRModule) -> Subgraphs:
    """All subgraphs of a module in normal form (see ``normalize``) by all registered patterns; the
    same for equal modules."""
    _, func = main_function(mod)
    math = "tf32" if (mod.attrs or {}).get(POLICY_ATTR) == "tf32" else "default"
    graph = GraphView(func, math)
    found: dict[relax.Var, list[Subgraph]] = defaultdict(list)
    illegal: list[tuple[str, str]] = []
    for pattern in patterns.registered():
        counts: dict[relax.Var, int] = defaultdict(int)
        for site in pattern.sites(graph):
            root = site.covered[0] if site.covered else None
            if reason := why_illegal(graph, site):
                illegal.append(
                    (f"{pattern.name} at {root.name if root is not None else '?'}", reason)
                )
                continue
            found[root].append(_subgraph(graph, pattern, site, counts[root]))
            counts[root] += 1
    subgraphs = []
    for root in sorted(found, key=graph.position.__getitem__):
        subgraphs += sorted(found[root], key=lambda r: -len(r.covered))
    return Subgraphs(subgraphs, illegal)


def _subgraph(graph: GraphView, pattern: patterns.Pattern, site: Site, index: int) -> Subgraph:
    root = site.covered[0].name
    own = f"{root}#{index}" if pattern.name == "epilogue" else f"{root}#{pattern.name}.{index}"
    covered = sorted(site.covered, key=graph.position.__getitem__)
    return Subgraph(
        id=own,
        root=own if site.split else root,
        covered=tuple(var.name for var in covered),
        outputs=tuple(var.name for var in site.outputs),
        workload=site.workload,
        inputs=site.inputs,
        optional=pattern.optional,
        split=site.split,
    )
