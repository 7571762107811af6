"""Scheduled programs on the CPU, where calls run one after the other in launch order: what is
reordered and what shares storage shows in the results."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from networks import SHAPE, by_numpy, kernels, random_network, schedule_all, to_calls
from tvm import relax
from tvm.runtime.vm import VirtualMachine

from convoy.ir.device import Device
from convoy.lower.lowered import Lowered
from convoy.runtime import load_runtime
from convoy.streams.link import Part, link
from convoy.streams.planner import multi_stream, single_stream
from convoy.streams.program import read

TARGET = tvm.target.Target("llvm")


@pytest.fixture(scope="module")
def scheduled():
    load_runtime()
    return schedule_all(kernels("float32"), TARGET)


@pytest.fixture(scope="module")
def compiled(scheduled):
    """The kernels as a runtime module, compiled once for all networks."""
    return Lowered(tvm.IRModule(scheduled), TARGET).kernels


def run(executable, inputs):
    vm = VirtualMachine(executable, tvm.cpu())
    return [t.numpy() for t in vm["main"](*[tvm.runtime.tensor(x) for x in inputs])]


@pytest.mark.parametrize("seed", range(12))
def test_random_networks(scheduled, compiled, seed: int) -> None:
    network = random_network(seed, 3 + 2 * seed)
    lowered = Lowered(to_calls(network, TARGET, "float32", scheduled), TARGET)
    lowered.kernels = compiled
    program = read(lowered.calls, Device())
    rng = np.random.default_rng(seed)
    inputs = [rng.uniform(-1, 1, SHAPE).astype("float32") for _ in range(network.inputs)]
    want = by_numpy(network, inputs)
    planned = [single_stream(program.ops, program.buffers)]
    planned += [multi_stream(program.ops, program.buffers, n) for n in (2, 4)]
    for schedule in planned:
        got = run(link([Part(lowered, program, schedule)]), inputs)
        assert len(got) == len(want)
        for y, expected in zip(got, want, strict=True):
            np.testing.assert_allclose(y, expected, atol=2e-5)


def test_ops_are_read_with_what_they_touch(scheduled) -> None:
    """One after the other are also those that ask TVM for workspace: not scheduled for a GPU, the
    kernel with a sum does."""
    network = random_network(5, 20)
    program = read(to_calls(network, TARGET, "float32", scheduled), Device())
    kernels_only = [node for node in network.nodes if node.kernel != "view"]
    assert [op.symbol for op in program.ops] == [node.kernel for node in kernels_only]
    assert all(op.kind == "native" for op in program.ops)
    place = {}  # node -> op; a view is its source
    for i, node in enumerate(network.nodes):
        source = node.reads[0][0]
        place[i] = place.get(source, -1) if node.kernel == "view" else kernels_only.index(node)
    slow: set[int] = set()
    for i, (op, node) in enumerate(zip(program.ops, kernels_only, strict=True)):
        expected = {place.get(n, -1) for n, _ in node.reads} - {-1}
        if node.kernel == "slow":
            expected |= slow
            slow = {i}
        assert set(op.depends) == expected


def test_state_that_is_updated_in_place(scheduled) -> None:
    """A kernel that writes a parameter comes behind all that read the old value and before all
    that read the new one."""
    builder = relax.BlockBuilder()
    light = builder.add_func(scheduled["light"], "light")
    blend = builder.add_func(scheduled["blend"], "blend")
    ty = relax.TensorType(SHAPE, "float32")
    x, state = relax.Var("x", ty), relax.Var("state", ty)
    alloc = relax.op.builtin.alloc_tensor(ty.shape, "float32", 0)
    nothing = [relax.TupleType([])]
    with builder.function("main", [x, state]):
        before = builder.emit(alloc)
        builder.emit(relax.Call(blend, [x, state, before], ty_args=nothing))
        builder.emit(relax.Call(light, [x, state], ty_args=nothing))
        after = builder.emit(alloc)
        builder.emit(relax.Call(blend, [x, state, after], ty_args=nothing))
        builder.emit_func_output(relax.Tuple([before, after, state]))
    lowered = Lowered(builder.get(), TARGET)
    program = read(lowered.calls, Device())
    assert [op.depends for op in program.ops] == [(), (0,), (1,)]
    assert not program.buffers
    schedule = multi_stream(program.ops, program.buffers, 3)
    rng = np.random.default_rng(1)
    a, b = (rng.uniform(-1, 1, SHAPE).astype("float32") for _ in range(2))
    got = run(link([Part(lowered, program, schedule)]), [a, b])
    new = np.tanh(a)
    for y, want in zip(got, (a * 0.5 - b * 0.25, a * 0.5 - new * 0.25, new), strict=True):
        np.testing.assert_allclose(y, want, atol=2e-5)


@pytest.mark.parametrize("streams", [1, 3])
def test_symbol_of_the_main_function_stays_its_own(scheduled, streams: int) -> None:
    network = random_network(3, 12)
    mod = to_calls(network, TARGET, "float32", scheduled)
    mod = tvm.IRModule(
        {
            gv: f.with_attr("global_symbol", "main") if gv.name_hint == "main" else f
            for gv, f in mod.functions.items()
        }
    )
    lowered = Lowered(mod, TARGET)
    program = read(lowered.calls, Device())
    schedule = multi_stream(program.ops, program.buffers, streams)
    inputs = [np.full(SHAPE, 0.1 * i, "float32") for i in range(network.inputs)]
    got = run(link([Part(lowered, program, schedule)]), inputs)
    for y, want in zip(got, by_numpy(network, inputs), strict=True):
        np.testing.assert_allclose(y, want, atol=2e-5)
