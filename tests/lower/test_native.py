"""TVM's own kernels of a network: their calls, and for how many operations bytes are counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm

import convoy
from convoy.normalize.normal_form import normalize
from convoy.partition.operations import operations
from convoy.partition.rewrite import rewrite
from convoy.partition.subgraphs import find_subgraphs
from convoy.pipeline import compile_placement
from convoy.relay import testing
from convoy.relay.convert import to_relax
from convoy.runtime.compiled import _all_imports
from convoy.training.resnet import small_resnet

from ..helpers.longest import longest
from ..helpers.native_calls import native_calls

NETWORKS: dict[str, Callable[[], Any]] = {
    "resnet18": lambda: testing.resnet.get_workload(),
    "squeezenet": lambda: testing.squeezenet.get_workload(),
    "googlenet": lambda: testing.googlenet.get_workload(),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("form", [{}, {"pixels_as_channels": True}, {"pad_channels": 1}], ids=str)
def test_what_subgraphs_leave_is_counted_as_tvm_fuses_it(name: str, form: dict[str, Any]) -> None:
    normal = normalize(to_relax(*NETWORKS[name]()), dtype="float16", **form)
    subgraphs = find_subgraphs(normal)
    chosen = longest(subgraphs)
    rewritten = rewrite(normal, {subgraph.id: subgraph.id for subgraph in chosen})
    calls = native_calls(rewritten, "llvm")
    covered = {name for subgraph in subgraphs for name in subgraph.ops}
    moved = [op for op in operations(normal, covered) if op.moved_bytes]
    assert len(moved) == len(calls)
    for call in calls:
        shape, dtype = call.operands[-1]
        assert all(size > 0 for size in shape) and dtype in ("float16", "float32")


def test_every_kernel_of_a_training_step_runs_with_its_operands(tmp_path: Any) -> None:
    step = small_resnet(2, image=8, channels=2, widths=(8,)).step()
    placed = convoy.place(step.module, backends=("tvm",), measure=False)
    calls = native_calls(placed.module, "llvm")
    names = {call.name for call in calls}
    assert {"batch_norm_stats", "batch_norm_grad_stats", "optimizer_update"} <= names
    compile_placement(placed, "llvm").export_library(tmp_path / "step.so")
    parts = _all_imports(convoy.load(tmp_path / "step.so").module)
    for call in calls:
        run = next(part[call.name] for part in parts if part.implements_function(call.name))
        run(*(tvm.runtime.tensor(np.zeros(shape, dtype)) for shape, dtype in call.operands))


def test_bytes_of_a_pool() -> None:
    normal = normalize(to_relax(*NETWORKS["googlenet"]()), dtype="float16")
    subgraphs = find_subgraphs(normal)
    stems = {s.id for s in subgraphs if s.require_workload().op == "stem"}
    pool_bytes = 2 * 112 * 112 * 64 + 2 * 56 * 56 * 64  # read and written
    for without, pools in ((stems, 1), (set(), 0)):  # a stem covers the pool behind it
        covered = {name for s in subgraphs if s.id not in without for name in s.ops}
        ops = operations(normal, covered)
        assert [op.moved_bytes for op in ops].count(pool_bytes) == pools
    assert not any(op.moved_bytes for op in operations(normal, {op.name for op in ops}))
