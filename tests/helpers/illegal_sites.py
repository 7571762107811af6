"""Matches of patterns that cannot be replaced."""

from __future__ import annotations

import tvm

from convoy.graph.function import main_function
from convoy.normalize.normal_form import POLICY_ATTR
from convoy.partition import patterns
from convoy.partition.patterns.base import GraphView, why_illegal


def illegal_sites(module: tvm.IRModule) -> list[tuple[str, str]]:
    """Return (pattern and root, reason) of each such match in a module in normal form."""
    _, func = main_function(module)
    graph = GraphView(func, str((module.attrs or {}).get(POLICY_ATTR, "float32")))
    return [
        (f"{pattern.name} at {site.covered[0].name if site.covered else '?'}", reason)
        for pattern in patterns.registered()
        for site in pattern.sites(graph)
        if (reason := why_illegal(graph, site))
    ]
