"""Bottlenecks as data: names, JSON there and back, operands, what is no bottleneck."""

from __future__ import annotations

import dataclasses

import pytest

from convoy.errors import InvalidWorkload
from convoy.ir.bottleneck import Bottleneck, parts
from convoy.ir.epilogue import Epilogue
from convoy.ir.operands import operand_bytes, read_ahead, weight_bytes, weights
from convoy.ir.workload import Workload

from ..helpers import workload_json
from ..sm90.bottleneck_cases import cases, usual

RESNET, PAIR, *_ = usual()
RELU = Epilogue(bias=True, activation="relu")
BARE = dataclasses.replace(RESNET, epilogue=Epilogue(), bottleneck=Bottleneck(256))


def test_names() -> None:
    assert RESNET.key == (
        "bottleneck.n1h56w56c64k64r3s3.st1x1.pd1x1.float16-float16-float32.bias_relu."
        "expand256.residual_bias_relu.reduce64.bias_relu"
    )
    assert PAIR.key.endswith("float32.bias_relu.expand256.bias_relu")
    assert BARE.key.endswith("float32.expand256")
    assert RESNET.label == "bottleneck 3x3 64→64→256→64"
    assert PAIR.label == "bottleneck 3x3 64→64→256"


@pytest.mark.parametrize("w", [*usual(), *cases(25, 4), BARE], ids=lambda w: w.key)
def test_json_there_and_back(w: Workload) -> None:
    workload_json.check_there_and_back(w)


def test_every_field_is_part_of_the_key() -> None:
    wide = RELU, dataclasses.replace(RELU, residual=True)
    fields = [Bottleneck(256), Bottleneck(128), *(Bottleneck(256, e) for e in wide)]
    fields += [Bottleneck(256, reduce=64), Bottleneck(256, reduce=32)]
    fields += [Bottleneck(256, reduce=64, reduce_epilogue=RELU), Bottleneck(64, reduce=256)]
    found = [dataclasses.replace(w, bottleneck=b) for w in (RESNET, BARE) for b in fields]
    workload_json.check_distinct(found, 16)


def test_a_convolution_is_written_as_before() -> None:
    first, *_ = parts(RESNET)
    assert first.op == "fprop" and first.bottleneck is None and not first.is_back_to_back
    assert "bottleneck" not in first.to_json() and "expand" not in first.key
    assert weights(first) == (1,)


def test_operands() -> None:
    assert RESNET.operand_shapes() == [
        ("x", (1, 56, 56, 64), "float16"),
        ("w", (64, 3, 3, 64), "float16"),
        ("expand", (256, 64), "float16"),
        ("reduce", (64, 256), "float16"),
        ("residual", (1, 56, 56, 256), "float16"),
        ("bias", (64,), "float16"),
        ("expand_bias", (256,), "float16"),
        ("reduce_bias", (64,), "float16"),
        ("y", (1, 56, 56, 256), "float16"),
        ("z", (1, 56, 56, 64), "float16"),
    ]
    assert RESNET.num_outputs == 2 and RESNET.is_back_to_back
    assert [name for name, *_ in BARE.operand_shapes()] == ["x", "w", "expand", "y"]
    assert BARE.num_outputs == 1
    unpadded = dataclasses.replace(BARE, padding=(0, 0, 0, 0))
    assert unpadded.operand_shapes()[-1][1] == (1, 54, 54, 256)


@pytest.mark.parametrize("w", [*usual(), *cases(10, 1)], ids=lambda w: w.key)
def test_weights_are_the_filters(w: Workload) -> None:
    names = ["w", "expand", "reduce"][: 2 + (w.num_outputs == 2)]
    assert [w.operand_shapes()[i][0] for i in weights(w)] == names
    assert weight_bytes(w) == sum(map(weight_bytes, parts(w)))
    biases = [name for name, *_ in w.operand_shapes() if name.endswith("bias")]
    assert [w.operand_shapes()[i][0] for i in read_ahead(w)] == [*names, *biases]


@pytest.mark.parametrize("w", [*usual(), *cases(10, 1), BARE], ids=lambda w: w.key)
def test_work(w: Workload) -> None:
    each = parts(w)
    assert w.flops == sum(part.flops for part in each)
    assert w.gemms == each[0].gemms
    assert w.bytes_moved == operand_bytes(w)
    between = 2 * 2 * w.pixels * w.k
    if w.num_outputs == 2:
        between += 2 * w.pixels * w.bottleneck.expand
    assert sum(map(operand_bytes, each)) == operand_bytes(w) + between, "written and read"


def test_parts() -> None:
    first, second, third = parts(dataclasses.replace(RESNET, padding=(0, 0, 0, 0)))
    assert (first.op, first.h, first.r, first.epilogue) == ("fprop", 56, 3, RELU)
    assert (second.h, second.c, second.k, second.r, second.padding) == (54, 64, 256, 1, (0,) * 4)
    assert second.epilogue == RESNET.bottleneck.expand_epilogue
    assert (third.h, third.c, third.k, third.epilogue) == (54, 256, 64, RELU)
    assert len(parts(PAIR)) == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"bottleneck": None},
        {"op": "fprop"},
        {"op": "expand_depthwise"},
        {"groups": 2},
        {"stride": (2, 2)},
        {"out_dtype": "float32"},
        {"dtype": "float32"},
        {"dtype": "int8", "out_dtype": "int8", "acc_dtype": "int32"},
        {"epilogue": Epilogue(residual=True)},
        {"epilogue": Epilogue(affine_relu=True)},
    ],
    ids=str,
)
def test_other_workloads_have_none(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidWorkload):
        dataclasses.replace(BARE, **fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"expand_epilogue": Epilogue(affine_relu=True)}, "the activation behind them alone"),
        (
            {"expand_epilogue": Epilogue(True, activation="relu", residual_last=True)},
            "the activation behind them alone",
        ),
        ({"reduce": 8, "reduce_epilogue": Epilogue(residual=True)}, "bias and activation alone"),
        ({"reduce": 8, "reduce_epilogue": Epilogue(affine_relu=True)}, "bias and activation alone"),
        ({"reduce_epilogue": RELU}, "a third convolution"),
    ],
    ids=str,
)
def test_only_the_second_convolution_adds_a_tensor(fields: dict, expected: str) -> None:
    with pytest.raises(InvalidWorkload, match=expected):
        Bottleneck(16, **fields)


@pytest.mark.parametrize(
    "changes",
    [
        {"expand": 0},
        {"expand": "16"},
        {"reduce": -8},
        {"stride": 2},
        {"expand_epilogue": {"bias": 2}},
        {"reduce_epilogue": {"residual": True}},
    ],
    ids=str,
)
def test_wrong_json_is_rejected(changes: dict[str, object]) -> None:
    workload_json.check_changed_json(RESNET, "bottleneck", changes)


def test_expand_is_required() -> None:
    workload_json.check_required(RESNET, "bottleneck", "expand")
