"""Squeeze-and-excitation blocks as data: names, JSON there and back, operands, what is none."""

from __future__ import annotations

import dataclasses
import math

import pytest

from convoy.errors import InvalidWorkload
from convoy.ir.epilogue import Epilogue
from convoy.ir.operands import operand_bytes, read_ahead, weight_bytes, weights
from convoy.ir.squeeze_excite import SqueezeExcite, image_of, squeeze_and_excite
from convoy.ir.workload import Workload

from ..helpers import workload_json
from ..sm90.squeeze_excite_cases import activated, cases, made, usual

EFFICIENTNET, MOBILENET, RESNET, _ = usual()
RELU = Epilogue(bias=True, activation="relu")
BARE = dataclasses.replace(RESNET, epilogue=Epilogue(), squeeze_excite=SqueezeExcite(16))


def test_names() -> None:
    assert RESNET.key == (
        "squeeze_excite.n3h7w7c256k256r1s1.st1x1.pd0x0.float16-float16-float32.residual_relu."
        "squeeze16.bias_relu.gate.bias_sigmoid"
    )
    assert EFFICIENTNET.key.endswith("float32.squeeze10.bias_silu.gate.bias_sigmoid")
    assert BARE.key.endswith("float32.squeeze16.gate")
    assert RESNET.label == "squeeze_excite 256→16→256"


@pytest.mark.parametrize("w", [*usual(), *cases(25, 4), BARE], ids=lambda w: w.key)
def test_json_there_and_back(w: Workload) -> None:
    workload_json.check_there_and_back(w)


def test_every_field_is_part_of_the_key() -> None:
    fields = [SqueezeExcite(16), SqueezeExcite(8), SqueezeExcite(16, RELU)]
    fields += [SqueezeExcite(16, gate_epilogue=RELU), SqueezeExcite(16, RELU, RELU)]
    found = [dataclasses.replace(w, squeeze_excite=own) for w in (RESNET, BARE) for own in fields]
    workload_json.check_distinct(found, 10)


def test_a_convolution_is_written_as_before() -> None:
    image = image_of(BARE)
    assert image.op == "fprop" and image.squeeze_excite is None and not image.is_back_to_back
    assert "squeeze_excite" not in image.to_json() and "squeeze" not in image.key
    assert weights(image) == (1,)


def test_operands() -> None:
    assert RESNET.operand_shapes() == [
        ("x", (3, 7, 7, 256), "float16"),
        ("squeeze", (16, 256), "float16"),
        ("excite", (256, 16), "float16"),
        ("residual", (3, 7, 7, 256), "float16"),
        ("squeeze_bias", (16,), "float16"),
        ("excite_bias", (256,), "float16"),
        ("y", (3, 7, 7, 256), "float16"),
    ]
    assert RESNET.num_outputs == 1 and RESNET.is_back_to_back
    assert [name for name, *_ in BARE.operand_shapes()] == ["x", "squeeze", "excite", "y"]
    names = [name for name, *_ in made(1, 4, 8, 2, biases=(False, True)).operand_shapes()]
    assert names == ["x", "squeeze", "excite", "excite_bias", "y"]


@pytest.mark.parametrize("w", [*usual(), *cases(10, 1), BARE], ids=lambda w: w.key)
def test_weights_are_those_of_the_products(w: Workload) -> None:
    names, own = [name for name, *_ in w.operand_shapes()], w.squeeze_excite
    biases = ["squeeze_bias"] * own.squeeze_epilogue.bias + ["excite_bias"] * own.gate_epilogue.bias
    assert [names[i] for i in weights(w)] == ["squeeze", "excite"]
    assert [names[i] for i in read_ahead(w)] == ["squeeze", "excite", *biases]
    assert weight_bytes(w) == sum(map(weight_bytes, squeeze_and_excite(w)))


@pytest.mark.parametrize("w", [*usual(), *cases(10, 1), BARE], ids=lambda w: w.key)
def test_work(w: Workload) -> None:
    squeeze, _ = each = squeeze_and_excite(w)
    image = math.prod(w.operand_shapes()[0][1])
    assert w.flops == sum(part.flops for part in each) + 2 * image
    assert w.gemms == squeeze.gemms
    assert w.bytes_moved == operand_bytes(w)
    between = 2 * 2 * w.n * (w.c + w.squeeze_excite.channels)  # written and read
    images = 2 * (2 + w.epilogue.residual) * image
    assert sum(map(operand_bytes, each)) + images == operand_bytes(w) + between


def test_squeeze_and_excite() -> None:
    squeeze, excite = squeeze_and_excite(EFFICIENTNET)
    assert (squeeze.op, squeeze.n, squeeze.h, squeeze.w) == ("fprop", 1, 1, 1)
    assert (squeeze.c, squeeze.k, excite.c, excite.k) == (240, 10, 10, 240)
    assert squeeze.epilogue == Epilogue(bias=True, activation="silu")
    assert excite.epilogue == Epilogue(bias=True, activation="sigmoid")


@pytest.mark.parametrize(
    "fields",
    [
        {"squeeze_excite": None},
        {"op": "fprop"},
        {"op": "bottleneck"},
        {"k": 128},
        {"r": 3, "padding": (1, 0, 1, 0)},
        {"groups": 2},
        {"stride": (2, 2)},
        {"padding": (1, 1, 1, 1)},
        {"dilation": (2, 1)},
        {"out_dtype": "float32"},
        {"dtype": "float32"},
        {"dtype": "int8", "out_dtype": "int8", "acc_dtype": "int32"},
        {"epilogue": Epilogue(bias=True)},
        {"epilogue": Epilogue(affine_relu=True)},
        {"epilogue": Epilogue(True, activation="relu", residual_last=True)},
    ],
    ids=str,
)
def test_other_workloads_have_none(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidWorkload):
        dataclasses.replace(BARE, **fields)


@pytest.mark.parametrize("epilogue", [Epilogue(residual=True), Epilogue(affine_relu=True)], ids=str)
def test_products_have_a_bias_and_an_activation_alone(epilogue: Epilogue) -> None:
    with pytest.raises(InvalidWorkload, match="first GEMM; expected bias and activation"):
        SqueezeExcite(16, epilogue)
    with pytest.raises(InvalidWorkload, match="second GEMM; expected bias and activation"):
        SqueezeExcite(16, activated("relu"), epilogue)


@pytest.mark.parametrize(
    "changes",
    [
        {"channels": 0},
        {"channels": "16"},
        {"stride": 2},
        {"squeeze_epilogue": {"bias": 2}},
        {"gate_epilogue": {"residual": True}},
    ],
    ids=str,
)
def test_wrong_json_is_rejected(changes: dict[str, object]) -> None:
    workload_json.check_changed_json(RESNET, "squeeze_excite", changes)


def test_channels_are_required() -> None:
    workload_json.check_required(RESNET, "squeeze_excite", "channels")
