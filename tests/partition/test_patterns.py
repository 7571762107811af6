"""Patterns: the registry, those grown by a rule, and sites that cannot be taken."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import tvm
from tests.helpers.illegal_sites import illegal_sites
from tvm import relax

from convoy.errors import InvalidOption
from convoy.graph.expr import op_name, shape_of
from convoy.ir.workload import Workload
from convoy.partition import patterns
from convoy.partition.patterns import Explicit, GraphView, Grown, Pattern, Site
from convoy.partition.patterns.base import why_illegal
from convoy.partition.rewrite import rewrite
from convoy.partition.subgraphs import find_subgraphs


def module() -> tvm.IRModule:
    """tanh(x @ w), read twice; one of the readers is returned too."""
    x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.matmul(x, relax.const(np.ones((8, 16), "float32"))), "y")
            z = builder.emit(relax.op.tanh(y), "z")
            a = builder.emit(relax.op.negative(z), "a")
            b = builder.emit_output(relax.op.add(a, z), "b")
        builder.emit_func_output(b)
    return builder.get()


def product(inputs: Sequence[relax.Expr]) -> tuple[Workload, list[relax.Expr]]:
    workload = Workload("matmul", 4, 1, 1, 8, 16, 1, 1, dtype="float32", out_dtype="float32")
    return workload, [inputs[0], relax.const(np.ones((16, 8), "float32"))]


class ProductAndTanh(Grown):
    name = "product_tanh"

    def starts(self, view: GraphView, var: relax.Var) -> bool:
        return op_name(view.value[var]) == "relax.matmul"

    def takes(self, view: GraphView, chain: Sequence[relax.Var], reader: relax.Var) -> bool:
        return op_name(view.value[reader]) == "relax.tanh"

    def workload(
        self, view: GraphView, chain: Sequence[relax.Var]
    ) -> tuple[Workload, Sequence[relax.Expr]]:
        return product(view.value[chain[0]].args)


class Fixed(Pattern):
    """Sites made by a function of the graph."""

    def __init__(self, name: str, make) -> None:  # type: ignore[no-untyped-def]
        self.name, self._make = name, make

    def sites(self, view: GraphView) -> Iterator[Site]:
        yield from self._make(view)


@pytest.fixture
def registered() -> Iterator[list[str]]:
    names: list[str] = []
    yield names
    for name in names:
        patterns.unregister(name)


def add(pattern: Pattern, names: list[str]) -> None:
    patterns.register(pattern)
    names.append(pattern.name)


def test_grown_pattern_gives_every_prefix(registered: list[str]) -> None:
    before = [subgraph.id for subgraph in find_subgraphs(module())]
    add(ProductAndTanh(), registered)
    subgraphs = find_subgraphs(module())
    own = [subgraph for subgraph in subgraphs if "product_tanh" in subgraph.id]
    assert [subgraph.ops for subgraph in own] == [("y", "z"), ("y",)], "longest first"
    assert [subgraph.id for subgraph in own] == ["y#product_tanh.1", "y#product_tanh.0"]
    assert all(subgraph.optional for subgraph in own)
    assert [r.id for r in subgraphs if "product_tanh" not in r.id] == before, "others keep names"
    rewritten = rewrite(module(), {own[0].id: "f"})
    assert "f" in rewritten.script() and "tanh" not in rewritten.script()


def test_names_are_the_patterns_own(registered: list[str]) -> None:
    with pytest.raises(InvalidOption):
        patterns.register(Fixed("two words", lambda view: ()))
    with pytest.raises(InvalidOption, match="second"):
        patterns.register(Fixed("epilogue", lambda view: ()))
    add(Fixed("one", lambda view: ()), registered)
    add(Fixed("one", lambda view: ()), registered)
    assert [pattern.name for pattern in patterns.registered()].count("one") == 1
    explicit = Explicit("one", relax.dpl.wildcard(), lambda matched, var: None)
    with pytest.raises(InvalidOption, match="second"):
        patterns.register(explicit)


def change(site: Site, view: GraphView, what: str) -> Site:
    by_name = {binding.var.name: binding.var for binding in view.bindings}
    y, z, a, b = (by_name[name] for name in "yzab")
    return {
        "nothing": dataclasses.replace(site, covered=()),
        "twice": dataclasses.replace(site, covered=(y, y)),
        "no output": dataclasses.replace(site, outputs=(z,)),
        "inside needed": dataclasses.replace(site, covered=(y, z, a), outputs=(a,)),
        "late operand": dataclasses.replace(site, inputs=(a, site.inputs[1])),
        "own operand": dataclasses.replace(site, inputs=(y, site.inputs[1])),
        "too few": dataclasses.replace(site, inputs=site.inputs[:1]),
        "wrong shape": dataclasses.replace(site, workload=dataclasses.replace(site.workload, k=8)),
        "returned": dataclasses.replace(site, covered=(y, z, a, b), outputs=(a,)),
    }[what]


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("nothing", "nothing"),
        ("twice", "twice"),
        ("no output", "outputs"),
        ("inside needed", "needed outside"),
        ("late operand", "not there"),
        ("own operand", "computed inside"),
        ("too few", "2 operands"),
        ("wrong shape", "operand"),
        ("returned", "needed outside"),
    ],
)
def test_sites_that_cannot_be_taken_are_left_out_with_the_reason(
    registered: list[str], what: str, reason: str
) -> None:
    def sites(view: GraphView) -> list[Site]:
        y = view.bindings[0].var
        workload, inputs = product(view.value[y].args)
        good = Site((y,), (y,), workload, tuple(inputs))
        assert shape_of(y) == (4, 16) and not why_illegal(view, good)
        return [change(good, view, what)]

    add(Fixed("broken", sites), registered)
    subgraphs = find_subgraphs(module())
    assert not any("broken" in subgraph.id for subgraph in subgraphs)
    ((where, why),) = illegal_sites(module())
    assert where.startswith("broken") and reason in why
