"""Nested values to tensors and back."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Record:
    value: Any
    name: Any


class Output(collections.OrderedDict):  # type: ignore[type-arg]
    """A mapping that is made from keywords, as Hugging Face's ModelOutput is."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(fields)


leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=3),
    st.integers(0, 3).map(lambda n: torch.arange(n)),
)  # fmt: skip
names = st.sampled_from(["a", "b", "c"])
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(names, inner, max_size=3),
        st.dictionaries(names, inner, max_size=3).map(collections.OrderedDict),
        st.dictionaries(names, inner, max_size=3).map(lambda fields: Output(**fields)),
        st.tuples(inner, inner).map(lambda pair: Pair(*pair)),
        st.tuples(inner, inner).map(lambda pair: Record(*pair)),
    ),
    max_leaves=8,
)


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a is b
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, Record):
        return same(a.value, b.value) and same(a.name, b.name)
    return bool(a == b)


@given(values)
def test_round_trip(value: Any) -> None:
    from convoy.pytorch.structure import flatten, unflatten

    tensors, structure = flatten(value)
    assert same(unflatten(structure, tensors), value)


@given(values, values)
def test_structures_tell_values_apart(one: Any, other: Any) -> None:
    from convoy.pytorch.structure import flatten, unflatten

    (tensors, structure), (_, second) = flatten(one), flatten(other)
    if structure == second:
        assert same(unflatten(second, tensors), one)


def test_no_stack_trace_is_taken_for_a_node() -> None:
    """They are a third of the time of tracing."""
    from convoy.pytorch.importer import trace
    from convoy.pytorch.structure import flatten

    tensors, structure = flatten(((torch.zeros(2, 3),), {}))
    nodes = trace(torch.relu, structure, tensors).program.graph.nodes
    assert len(nodes) == 3 and not any(node.stack_trace for node in nodes)
    assert not torch.fx.config.do_not_emit_stack_traces
