"""Names of layers survive all passes, from whichever importer a module comes."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

import convoy
from convoy import relay
from convoy.ir.layer import layer_name
from convoy.ir.plan import Plan
from convoy.relay.convert import to_relax

RELAY = """#[version = "0.0.5"]
def @main(%data: Tensor[(1, 3, 16, 16), float32], %stem_weight: Tensor[(8, 3, 3, 3), float32],
          %g: Tensor[(8), float32], %b: Tensor[(8), float32], %m: Tensor[(8), float32],
          %v: Tensor[(8), float32], %body_conv_weight: Tensor[(16, 8, 3, 3), float32],
          %fc_weight: Tensor[(10, 16), float32]) {
  %0 = nn.conv2d(%data, %stem_weight, strides=[2, 2], padding=[1, 1, 1, 1], channels=8,
                 kernel_size=[3, 3]);
  %1 = nn.batch_norm(%0, %g, %b, %m, %v);
  %2 = nn.relu(%1.0);
  %3 = nn.relu(nn.conv2d(%2, %body_conv_weight, padding=[1, 1, 1, 1], channels=16,
                         kernel_size=[3, 3]));
  nn.dense(nn.batch_flatten(nn.global_avg_pool2d(%3)), %fc_weight, units=10)
}
"""


def params() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {
        "stem_weight": (8, 3, 3, 3), "g": 8, "b": 8, "m": 8, "v": 8,
        "body_conv_weight": (16, 8, 3, 3), "fc_weight": (10, 16),
    }  # fmt: skip
    return {name: rng.uniform(0.5, 1, shape).astype("float32") for name, shape in shapes.items()}


def labels(mod: tvm.IRModule, **options: object) -> list[str]:
    placed = convoy.place(mod, backends=("cutlass", "tvm"), measure=False, **options)
    assert Plan.loads(placed.plan.dumps()) == placed.plan
    return [c.label for c in placed.plan.choices] + [n.layer for n in placed.native]


@pytest.mark.parametrize("early", [True, False])
def test_layers_of_relay_are_those_of_its_weights(early: bool) -> None:
    module = relay.parse(RELAY)
    if early:
        found = labels(to_relax(module, params()))
    else:
        found = labels(to_relax(module), params=params())
    assert sorted(found) == ["body_conv", "fc", "stem"]


def torch_like(names: bool) -> tvm.IRModule:
    """What an importer makes that keeps weights as parameters, or binds them."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 8, 12, 12), "float32"))
    conv = relax.Var("body.0.weight", relax.TensorType((16, 8, 3, 3), "float32"))
    head = relax.Var("head.weight", relax.TensorType((10, 16), "float32"))
    with builder.function("main", [x, conv, head]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.relu(relax.op.nn.conv2d(x, conv, padding=1)))
            y = builder.emit(relax.op.mean(y, [2, 3]))
            y = builder.emit(relax.op.matmul(y, relax.op.permute_dims(head)))
            y = builder.emit_output(y)
        builder.emit_func_output(y)
    return builder.get()


def test_layers_of_an_importer_that_keeps_weights_as_parameters() -> None:
    rng = np.random.default_rng(0)
    values = {
        "body.0.weight": rng.normal(size=(16, 8, 3, 3)),
        "head.weight": rng.normal(size=(10, 16)),
    }
    mod = torch_like(True)
    assert sorted(labels(mod, params=values)) == ["body.0", "head"]
    bound = relax.transform.BindParams("main", {k: v.astype("float32") for k, v in values.items()})
    assert sorted(labels(bound(mod))) == ["", "3x3 8→16"], "nothing is known, nothing made up"


@pytest.mark.parametrize(
    ("weight", "layer"),
    [
        ("layer1.0.conv.weight", "layer1.0.conv"),
        ("stage1_conv1_weight", "stage1_conv1"),
        ("model/conv/kernel", "model/conv"),
        ("onnx::Conv_497", "onnx::Conv_497"),
        ("weight", ""),
        ("weights_of_x", "weights_of_x"),
    ],
)
def test_layer_name(weight: str, layer: str) -> None:
    assert layer_name(weight) == layer
