"""Expansions as data: names, JSON there and back, operands, what is no expansion."""

from __future__ import annotations

import dataclasses

import pytest

from convoy.errors import InvalidWorkload
from convoy.ir.epilogue import Epilogue
from convoy.ir.expansion import Expansion
from convoy.ir.operands import operand_bytes, weight_bytes, weights
from convoy.ir.workload import Workload

from ..helpers import workload_json
from ..sm90.expansion_cases import cases, usual

MOBILENET = next(usual())
BARE = dataclasses.replace(MOBILENET, epilogue=Epilogue(), expansion=Expansion(16))


def test_names() -> None:
    assert MOBILENET.key == (
        "expand_depthwise.n1h56w56c96k96r3s3.st2x2.pd1x1.g96.float16-float16-float32."
        "bias_clip[0,6].expand16.bias_clip[0,6]"
    )
    assert BARE.key.endswith("float32.expand16")
    assert MOBILENET.label == "expand_depthwise 3x3 16→96 /2"


@pytest.mark.parametrize("w", [*usual(), *cases(25, 4), BARE], ids=lambda w: w.key)
def test_json_there_and_back(w: Workload) -> None:
    workload_json.check_there_and_back(w)


def test_every_field_is_part_of_the_key() -> None:
    epilogues = Epilogue(bias=True), Epilogue(activation="relu")
    fields = [Expansion(16), Expansion(24), *(Expansion(16, e) for e in epilogues)]
    found = [dataclasses.replace(w, expansion=e) for w in (MOBILENET, BARE) for e in fields]
    workload_json.check_distinct(found, 8)


def test_a_convolution_is_written_as_before() -> None:
    depthwise = dataclasses.replace(MOBILENET, op="fprop", expansion=None)
    assert "expansion" not in depthwise.to_json() and "expand" not in depthwise.key
    assert weights(depthwise) == (1,)


def test_operands() -> None:
    x, w, expand, *biases, y = MOBILENET.operand_shapes()
    assert x == ("x", (1, 56, 56, 16), "float16")
    assert w == ("w", (96, 3, 3, 1), "float16")
    assert expand == ("expand", (96, 16), "float16")
    assert biases == [(name, (96,), "float16") for name in ("expand_bias", "bias")]
    assert y == ("y", (1, 28, 28, 96), "float16")
    assert [name for name, *_ in BARE.operand_shapes()] == ["x", "w", "expand", "y"]
    assert [MOBILENET.operand_shapes()[i][0] for i in weights(MOBILENET)] == ["w", "expand"]


def test_work() -> None:
    pixels, results = 56 * 56, 28 * 28
    assert BARE.flops == 2 * 96 * (pixels * 16 + results * 9)
    assert BARE.gemms == (1, pixels, 96, 16)
    assert weight_bytes(BARE) == 2 * 96 * (16 + 9)
    moved = 2 * (pixels * 16 + results * 96) + weight_bytes(BARE)
    assert BARE.bytes_moved == operand_bytes(BARE) == moved


@pytest.mark.parametrize(
    "fields",
    [
        {"expansion": None},
        {"op": "fprop"},
        {"groups": 48},
        {"k": 192},
        {"out_dtype": "float32"},
        {"dtype": "float32"},
        {"epilogue": Epilogue(residual=True)},
        {"epilogue": Epilogue(affine_relu=True)},
        {"c": 1, "k": 1, "groups": 1},
    ],
    ids=str,
)
def test_other_workloads_have_none(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidWorkload):
        dataclasses.replace(BARE, **fields)


@pytest.mark.parametrize(
    "epilogue", [Epilogue(residual=True), Epilogue(affine_relu=True)], ids=lambda e: e.name
)
def test_the_1x1_convolution_adds_no_tensor(epilogue: Epilogue) -> None:
    with pytest.raises(InvalidWorkload, match="bias and activation alone"):
        Expansion(16, epilogue)


@pytest.mark.parametrize(
    "changes", [{"channels": 0}, {"channels": "16"}, {"stride": 2}, {"epilogue": {"bias": 2}}]
)
def test_wrong_json_is_rejected(changes: dict[str, object]) -> None:
    workload_json.check_changed_json(MOBILENET, "expansion", changes)


def test_channels_are_required() -> None:
    workload_json.check_required(MOBILENET, "expansion", "channels")
