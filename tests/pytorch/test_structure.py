"""Nested values to tensors and back."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, NamedTuple

import numpy as np
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


@pytest.mark.parametrize(
    ("example", "same", "other"),
    [
        (2, 2, 2.0),
        (1, 1, True),
        (float("nan"), float("nan"), 0.0),
        (np.ones(2), np.ones(2), np.zeros(2)),
        (np.ones(2, "int8"), np.ones(2, "int8"), np.ones(2, "int64")),
        ({1, 2}, {1, 2}, {1, 2, 3}),
    ],
    ids=str,
)
def test_constants_that_a_function_can_tell_apart(example: Any, same: Any, other: Any) -> None:
    from convoy.pytorch.structure import flatten

    one = flatten((example,))[1]
    assert one == flatten((same,))[1]
    assert one != flatten((other,))[1]


def test_constants_that_are_written_to_later() -> None:
    from convoy.pytorch.structure import flatten

    sizes, names = np.ones(2), {"a"}
    before = flatten((sizes, names))[1]
    sizes[0] = 2
    assert before != flatten((sizes, {"a"}))[1]
    names.add("b")
    assert before != flatten((np.ones(2), names))[1]
    assert before == flatten((np.ones(2), {"a"}))[1]


@dataclasses.dataclass
class Scaled:
    """Computes when it is made, and later."""

    tensor: Any
    more: Any = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.tensor, self.more = self.tensor * 2, None


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    tensor: Any
    factor: int = 3


def test_dataclasses_are_not_made_twice() -> None:
    import convoy

    def function(given: Scaled, frozen: Frozen) -> tuple[Any, ...]:
        made = Scaled(given.tensor + 1)
        made.more = frozen.tensor * frozen.factor
        return made, Frozen(made.tensor)

    x = torch.randn(2, 3)
    args = Scaled(x), Frozen(x)
    got, want = (called(*args) for called in (convoy.compile(function, args), function))
    torch.testing.assert_close(got[0].tensor, want[0].tensor)
    torch.testing.assert_close(got[0].more, want[0].more)
    torch.testing.assert_close(got[1].tensor, want[1].tensor)
    assert isinstance(got[1], Frozen) and got[1].factor == 3


def test_tensors_of_objects_are_inputs() -> None:
    import convoy

    class Cache:
        def __init__(self, keys: Any) -> None:
            self.layers, self.size = [keys], len(keys)
            self.itself: Any = None

    x = torch.randn(2, 3)
    cache = Cache(x)
    compiled = convoy.compile(lambda x, cache: x + cache.layers[0] * cache.size, (x, cache))
    cache.layers = [x * 2]
    torch.testing.assert_close(compiled(x, cache), x + x * 4)
    cache.itself = cache
    with pytest.raises(convoy.errors.InvalidOption, match="refers to itself"):
        compiled(x, cache)
    cache.itself = None
    cache.size = 5
    with pytest.raises(convoy.errors.InvalidOption, match="compile another one"):
        compiled(x, cache)
