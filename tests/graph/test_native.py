"""TVM's own kernels of a network: their calls, and how many the dataflow says there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from convoy import graph
from convoy.graph.native import native_calls
from convoy.relay import testing
from convoy.relay.convert import to_relax

NETWORKS: dict[str, Callable[[], Any]] = {
    "resnet18": lambda: testing.resnet.get_workload(),
    "squeezenet": lambda: testing.squeezenet.get_workload(),
    "googlenet": lambda: testing.googlenet.get_workload(),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("form", [{}, {"space_to_depth": True}, {"pad_channels": 1}], ids=str)
def test_what_regions_leave_is_counted_as_tvm_fuses_it(name: str, form: dict[str, Any]) -> None:
    normal = graph.normalize(to_relax(*NETWORKS[name]()), dtype="float16", **form)
    regions = graph.find_regions(normal)
    longest = graph.select(regions, lambda workload: True)
    rewritten = graph.rewrite(normal, {region.id: region.id for region in longest})
    calls = native_calls(rewritten, "llvm")
    covered = {name for region in regions for name in region.covered}
    moved = graph.dataflow(normal).native_bytes(covered)
    assert len(moved) == len(calls)
    for call in calls:
        shape, dtype = call.operands[-1]
        assert all(size > 0 for size in shape) and dtype in ("float16", "float32")


def test_bytes_of_a_pool() -> None:
    normal = graph.normalize(to_relax(*NETWORKS["googlenet"]()), dtype="float16")
    flow = graph.dataflow(normal)
    pools = [
        op
        for op in flow.operations
        if (op.bytes_read, op.bytes_written) == (2 * 112 * 112 * 64, 2 * 56 * 56 * 64)
    ]
    assert len(pools) == 1 and not pools[0].fused
    assert flow.native_bytes({op.name for op in flow.operations}) == {}
