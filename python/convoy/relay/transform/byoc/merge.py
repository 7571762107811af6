"""MergeCompilerRegions: join regions of one compiler."""

from __future__ import annotations

from convoy.relay.ast import Call, Expr, Function
from convoy.relay.transform.base import Pass, register_pass
from convoy.relay.transform.byoc.regions import (
    AnnotatedRegion,
    AnnotatedRegionSet,
    annotation,
    is_end,
)
from convoy.relay.transform.rewriting import expr_pass
from convoy.relay.visit import children, post_order, rebuild


@register_pass
def MergeCompilerRegions() -> Pass:
    """Join a region with those it reads from, where they have the same compiler.

    Regions stay apart where a value leaves the one, is computed on outside, and enters the other.
    """
    return expr_pass("MergeCompilerRegions", 0, _merged)


def _merged(function: Function) -> Expr:
    regions = AnnotatedRegionSet(function)
    for node in post_order(function):
        if not is_end(node):
            continue
        region = regions.get_region(node)
        assert region is not None
        while (found := _mergeable(regions, region)) is not None:
            regions.merge(found, region)
    memo: dict[int, Expr] = {}
    for node in post_order(function):
        memo[id(node)] = rebuild(node, memo)
        if annotation(node) is None or is_end(node):
            continue
        inner = node.args[0]  # type: ignore[attr-defined]
        if is_end(inner) and regions.get_region(inner) is regions.get_region(node):
            closed = memo[id(inner)]
            assert isinstance(closed, Call)
            memo[id(node)] = closed.args[0]
    return memo[id(function)]


def _mergeable(regions: AnnotatedRegionSet, region: AnnotatedRegion) -> AnnotatedRegion | None:
    for begin in region.args:
        source = regions.get_region(begin.args[0])  # type: ignore[attr-defined]
        if source is None or source is region or source.target != region.target:
            continue
        if not _around(source, region):
            return source
    return None


def _around(source: AnnotatedRegion, region: AnnotatedRegion) -> bool:
    """Check for a path from one region to another that leaves both."""
    inside = source.nodes | region.nodes
    stack = [p for begin in region.args for p in children(begin)[1:] if p not in inside]
    seen: set[Expr] = set()
    while stack:
        node = stack.pop()
        if node in source.nodes:
            return True
        if node not in seen:
            seen.add(node)
            stack.extend(children(node))
    return False
