"""Recurrent layers: the operator against PyTorch, unrolled, and where it is left whole."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from convoy.graph.expr import op_name
from convoy.graph.function import bindings_of, main_function
from convoy.ir.device import Device
from convoy.lower.passes import kernel_passes
from convoy.lower.target import cuda_target
from convoy.normalize.normal_form import normalize
from convoy.ops.recurrent import GATES, Recurrent, recurrent
from convoy.pipeline.cpu import build_for_cpu
from convoy.training.step import train_step

RECURRENT = "relax.convoy.recurrent"


def module(layer: Recurrent) -> tvm.IRModule:
    """A function of all operands of a layer."""
    width, state = layer.gates * layer.hidden, (layer.directions, layer.batch, layer.hidden)
    shapes = {
        "projected": (layer.time, layer.batch, layer.directions * width),
        "weights": (layer.directions, width, layer.hidden),
        "bias": (layer.directions, width),
        "hidden": state,
        "cell": state,
    }
    kept = list(shapes.items())[: 3 + layer.states]
    params = [relax.Var(name, relax.TensorType(shape, layer.dtype)) for name, shape in kept]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            call = recurrent(*params, cell=layer.cell, reversed=layer.reversed)
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    return builder.get()


def operators(mod: tvm.IRModule) -> Counter[str]:
    return Counter(op_name(binding.value) for binding in bindings_of(main_function(mod)[1]))


def operands(mod: tvm.IRModule) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [tuple(map(int, param.ty.shape.values)) for param in main_function(mod)[1].params]
    return [(rng.standard_normal(shape) * 0.5).astype("float32") for shape in shapes]


def of_pytorch(layer: Recurrent, arrays: list[np.ndarray]) -> list[Any]:
    """The steps by PyTorch's cell, whose input weights are the identity."""
    torch = pytest.importorskip("torch")
    projected, weights, bias, *states = map(torch.from_numpy, arrays)
    width, found, last = layer.gates * layer.hidden, [], []
    cell = torch.nn.LSTMCell if layer.cell == "lstm" else torch.nn.GRUCell
    for d in range(layer.directions):
        one = cell(width, layer.hidden)
        own = {"weight_ih": torch.eye(width), "bias_ih": torch.zeros(width)}
        one.load_state_dict({**own, "weight_hh": weights[d], "bias_hh": bias[d]})
        state = [s[d] for s in states]
        outputs = {}
        for t in range(layer.time)[:: -1 if layer.reversed or d == 1 else 1]:
            x = projected[t, :, d * width : (d + 1) * width]
            new = one(x, tuple(state) if len(state) > 1 else state[0])
            state = list(new) if len(state) > 1 else [new]
            outputs[t] = state[0]
        found.append(torch.stack([outputs[t] for t in range(layer.time)]))
        last.append(state)
    joined = [torch.stack(parts) for parts in zip(*last, strict=True)]
    return [torch.cat(found, 2).detach().numpy(), *(state.detach().numpy() for state in joined)]


@pytest.mark.parametrize(
    "layer",
    [
        Recurrent("lstm", 3, 2, 2, 5, "float32"),
        Recurrent("gru", 2, 3, 2, 4, "float32"),
        Recurrent("gru", 3, 1, 1, 6, "float32", reversed=True),
    ],
)
def test_steps_are_pytorchs(layer: Recurrent) -> None:
    mod = module(layer)
    arrays = operands(mod)
    built = build_for_cpu([mod], None, "llvm", "float32")
    got = built.session()(*arrays)
    for mine, right in zip(got, of_pytorch(layer, arrays), strict=True):
        np.testing.assert_allclose(mine, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "hidden", "arch", "whole"),
    [
        ("float16", 512, 90, True),
        ("bfloat16", 3, 100, True),
        ("float32", 64, 90, False),
        ("float16", 513, 90, False),
        ("float16", 64, 80, False),
        ("float16", 64, 120, False),
        ("float16", 64, 0, False),
    ],
)
def test_layers_with_a_kernel_stay_whole(dtype: str, hidden: int, arch: int, whole: bool) -> None:
    mod = module(Recurrent("lstm", 2, 1, 1, hidden, "float32"))
    found = operators(normalize(mod, None, dtype, arch=arch))
    assert found[RECURRENT] == whole
    assert (found["relax.matmul"] == 2) == (not whole)


def test_layers_are_differentiated_step_by_step() -> None:
    mod = module(Recurrent("gru", 2, 3, 1, 4, "float32"))
    builder = relax.BlockBuilder()
    params = [relax.Var(p.name, p.ty) for p in main_function(mod)[1].params]
    with builder.function("main", params):
        with builder.dataflow():
            outputs = builder.emit(
                relax.TupleGetItem(builder.emit(recurrent(*params, cell="gru")), 0)
            )
            loss = builder.emit_output(relax.op.mean(outputs))
        builder.emit_func_output(loss)
    step = train_step(builder.get(), ["weights"])
    assert operators(step.module)[RECURRENT] == 0


@pytest.mark.parametrize("cell", list(GATES))
def test_a_layer_is_one_kernel(cell: str) -> None:
    mod = normalize(module(Recurrent(cell, 4, 2, 2, 40, "float16")), None, "float16", arch=90)
    with cuda_target(Device()):
        for step in kernel_passes():
            mod = step(mod)
    names = {var.name_hint for var in mod.get_global_vars()} - {"main"}
    assert "recurrent" in names
    assert all("reshape" in name for name in names - {"recurrent"})
