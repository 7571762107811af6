"""CallGraph: who calls whom."""

from __future__ import annotations

import pytest

from convoy import relay
from convoy.errors import InvalidOption
from convoy.relay import tvm018 as tvm


def test_counts() -> None:
    mod = tvm.IRModule({})
    x, y, z = (relay.var(n, shape=(2,)) for n in "xyz")
    leaf, middle = relay.GlobalVar("leaf"), relay.GlobalVar("middle")
    mod[leaf] = relay.Function([x], relay.exp(x))
    mod[middle] = relay.Function([y], leaf(y) + leaf(relay.exp(y)))
    mod["main"] = relay.Function([z], middle(leaf(z)))
    graph = relay.analysis.CallGraph(mod)
    assert [graph.global_call_count(n) for n in ("leaf", "middle", "main")] == [0, 2, 2]
    assert [graph.ref_count(n) for n in (leaf, middle, "main")] == [3, 1, 0]
    assert not graph.is_recursive("middle")
    assert "leaf<<#refs = 3>>" in str(graph)
    with pytest.raises(InvalidOption, match="leaf, main, middle"):
        graph.ref_count("lef")
