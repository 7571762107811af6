"""Find attention in a network and run it with a reference in its place, on the CPU."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from convoy.ir.dtypes import numpy_dtype
from convoy.ir.workload import Workload
from convoy.lower.executable import lower
from convoy.measure import reference
from convoy.normalize.normal_form import normalize
from convoy.partition.match_graph import Subgraph
from convoy.partition.rewrite import rewrite
from convoy.partition.subgraphs import find_subgraphs

_symbols = itertools.count()


def attentions(module: tvm.IRModule) -> list[Subgraph]:
    """The subgraphs of a module in normal form that are attention."""
    found = find_subgraphs(module)
    return [s for s in found if s.require_workload().op == "attention"]


def normal(module: tvm.IRModule) -> tvm.IRModule:
    return normalize(module, dtype="float16")


def left(module: tvm.IRModule) -> set[str]:
    """Operators of a module's entry function."""
    names = set()
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            op = getattr(binding.value, "op", None)
            names.add(getattr(op, "name", "").removeprefix("relax."))
    return names


def run_fused(module: tvm.IRModule, inputs: Sequence[Any]) -> tuple[list[Workload], Any]:
    """Workloads that are found, and the first output with a reference in place of each."""
    module = normal(module)
    found, chosen = attentions(module), {}
    for subgraph in found:
        chosen[subgraph.id] = f"attention_of_a_test_{next(_symbols)}"
        tvm.register_global_func(chosen[subgraph.id], stand_in(subgraph.require_workload()))
    fused = rewrite(module, chosen)
    assert found == [] or "nn.softmax" not in left(fused)
    machine = relax.VirtualMachine(lower(fused, "llvm"), tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(np.asarray(x), tvm.cpu()) for x in inputs))
    while not hasattr(result, "numpy"):
        result = result[0]
    return [subgraph.require_workload() for subgraph in found], result.numpy()


def stand_in(workload: Workload) -> Any:
    """A function that computes a workload's result by its reference."""
    names = [name for name, _, _ in workload.operand_shapes()]

    def compute(*tensors: Any) -> None:
        values = {
            name: tensor.numpy().astype(np.float64)
            for name, tensor in zip(names[:-1], tensors, strict=False)
        }
        (result,) = reference.full(workload, values)
        tensors[-1].copyfrom(result.astype(numpy_dtype(workload.out_dtype)))

    return compute


def check(module: tvm.IRModule, inputs: Sequence[Any], wanted: Any, count: int = 1) -> list[Any]:
    """Assert that so many are found and that the network computes what it should.

    Returns:
        The workloads.
    """
    found, got = run_fused(module, inputs)
    assert len(found) == count
    assert np.array_equal(np.isnan(got), np.isnan(wanted))
    got, wanted = np.nan_to_num(got).astype(np.float64), np.nan_to_num(wanted).astype(np.float64)
    assert np.linalg.norm(got - wanted) < 3e-3 * np.linalg.norm(wanted)
    return found
