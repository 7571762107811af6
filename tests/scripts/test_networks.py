"""The networks of the benchmarks compute the right values, on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from tests.benchmark_networks import irregular, resnet50_backward

import convoy
from convoy.normalize.normal_form import normalize
from convoy.partition.operations import operations
from convoy.partition.subgraphs import find_subgraphs
from harness import launch_cost, networks, pair, systems


def test_launch_module_has_a_kernel_for_each_multiplication() -> None:
    session = convoy.build(launch_cost.chain(20, 64), "llvm").session()
    calls: list[str] = []
    session.observe(lambda _f, name, before, *_: calls.append(name) if before else None)
    x = np.linspace(1, 2, 64, dtype="float32")
    (y,) = session(x)
    session.observe(None)
    session(x)
    assert calls.count("short_kernel") == 20
    np.testing.assert_allclose(y, x * launch_cost.FACTOR**20, rtol=1e-5)


def test_pair_module_computes_two_chains() -> None:
    module = pair.module(1, 2)
    subgraphs = find_subgraphs(normalize(module))
    workloads = {subgraph.workload for subgraph in subgraphs if not subgraph.split}
    assert {(w.c, w.k, w.h, w.r) for w in workloads} == {(256, 256, 14, 3)}
    session = convoy.build(module, "llvm", precision="float32").session()
    rng = np.random.default_rng(0)
    inputs = [rng.normal(0, 1, shape).astype(dtype) for _, shape, dtype in session.input_info]
    outputs = [y.astype("float64") for y in session(*inputs)]
    assert systems.relative_error(outputs, pair.exact(1, inputs, 2)) < 1e-3


@pytest.mark.parametrize("name", ["randwire", "nasnet_cell"])
def test_irregular_networks_have_branches_and_compile(name: str) -> None:
    sizes = {"randwire": {"nodes": 8}, "nasnet_cell": {"cells": 1}}[name]
    module = getattr(irregular, name)(2, channels=8, size=6, **sizes)
    ops = operations(module)
    readers = [read for op in ops for read in op.inputs]
    assert sum(readers.count(op.name) > 1 for op in ops) >= 2, "branches"
    session = convoy.build(module, "llvm").session()
    x = np.random.default_rng(0).uniform(-1, 1, (2, 6, 6, 8)).astype("float32")
    (y,) = session(x)
    assert y.shape[:3] == (2, 6, 6) and np.isfinite(y).all() and y.std() > 0.01


def test_every_network_has_a_name_that_works() -> None:
    assert set(networks.INFERENCE) < set(networks.NETWORKS)
    assert all(networks.NETWORKS[name].make for name in networks.INFERENCE)
    main = networks.network("squeezenet", 3)["main"]
    assert [int(d) for d in main.params[0].ty.shape.values] == [3, 3, 224, 224]
    with pytest.raises(ValueError, match="peers alone"):
        networks.network("resnet50_v1", 1)


def test_backward_pass_has_the_layers_of_resnet50() -> None:
    every = [layer for block in resnet50_backward.blocks() for layer in block if layer]
    assert len(every) == 52, "ResNet-50 without its stem"
    assert [layer for layer in every if layer.channels % 8 or layer.out * layer.stride > 56] == []
    main = resnet50_backward.chain(1)["main"]
    assert len(main.params) == 53, "an activation for each layer, and the incoming gradient"
