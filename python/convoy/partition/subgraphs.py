"""Find the parts of a normal-form module that a backend could compute, each as a Workload.

They are the matches of the registered patterns (:mod:`convoy.partition.patterns`). Subgraphs
overlap: those of one root are alternatives, longest first, from which placement selects.
"""

from __future__ import annotations

from collections import defaultdict

import tvm
from tvm import relax

from ..graph.expr import layer_of
from ..graph.function import main_function
from ..normalize.normal_form import POLICY_ATTR
from . import patterns
from .match_graph import Subgraph
from .patterns.base import GraphView, Site, why_illegal


def find_subgraphs(module: tvm.IRModule) -> list[Subgraph]:
    """Match all registered patterns in a module in normal form (see ``normalize``).

    Returns:
        Subgraphs by root in program order, of each root the longest first; the same for equal
        modules.
    """
    _, func = main_function(module)
    graph = GraphView(func, str((module.attrs or {}).get(POLICY_ATTR, "float32")))
    found: dict[relax.Var, list[Subgraph]] = defaultdict(list)
    for pattern in patterns.registered():
        counts: dict[relax.Var, int] = defaultdict(int)
        for site in pattern.sites(graph):
            if not why_illegal(graph, site):
                root = site.covered[0]
                found[root].append(_subgraph(graph, pattern, site, counts[root]))
                counts[root] += 1
    subgraphs: list[Subgraph] = []
    for root in sorted(found, key=graph.position.__getitem__):
        subgraphs += sorted(found[root], key=lambda s: -len(s.ops))
    return subgraphs


def _subgraph(graph: GraphView, pattern: patterns.Pattern, site: Site, index: int) -> Subgraph:
    root = site.covered[0].name
    own = f"{root}#{index}" if pattern.name == "epilogue" else f"{root}#{pattern.name}.{index}"
    covered = sorted(site.covered, key=graph.position.__getitem__)
    layers = dict.fromkeys(layer_of(graph.value[var]) for var in covered)
    return Subgraph(
        id=own,
        ops=tuple(var.name for var in covered),
        outputs=tuple(var.name for var in site.outputs),
        workload=site.workload,
        root=own if site.split or site.joint else root,
        inputs=site.inputs,
        optional=pattern.optional,
        split=site.split,
        layer=" + ".join(filter(None, layers)),
    )
