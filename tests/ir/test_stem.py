"""Stems as data: names, JSON there and back, operands, sizes behind the pool, what is no stem."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from convoy.errors import InvalidWorkload
from convoy.ir.compact import without_defaults
from convoy.ir.epilogue import Epilogue
from convoy.ir.stem import Stem
from convoy.ir.workload import Workload

from ..sm90.stem_cases import cases, usual

RESNET = next(usual())
PLAIN = dataclasses.replace(RESNET, stem=Stem(3))


def changed(**fields: object) -> Workload:
    """ResNet's stem with other fields of its stem."""
    return dataclasses.replace(RESNET, stem=dataclasses.replace(RESNET.stem, **fields))


def test_names():
    assert RESNET.stem.name == "image3float32.pool3x3st2x2pd1x1x1x1"
    assert Stem(4, True, "bfloat16").name == "image4lastbfloat16"
    assert RESNET.key == (
        "stem.n1h224w224c4k64r7s7.st2x2.pd3x3.float16-float16-float32.bias_relu."
        "image3float32.pool3x3st2x2pd1x1x1x1"
    )
    assert RESNET.label == "stem 7x7 3→64 /2"


@pytest.mark.parametrize("w", [*usual(), *cases(25, 4), PLAIN], ids=lambda w: w.key)
def test_json_there_and_back(w):
    for fields in (w.to_json(), without_defaults(w)):
        again = Workload.from_json(json.loads(json.dumps(fields)))
        assert again == w and again.key == w.key and again.stem == w.stem
    assert Stem.from_json(json.loads(json.dumps(dataclasses.asdict(w.stem)))) == w.stem


def test_compact_form_says_only_what_is_not_the_default():
    assert without_defaults(PLAIN)["stem"] == {"channels": 3}
    assert without_defaults(changed(channels_last=True))["stem"] == {
        "channels": 3, "channels_last": True, "window": (3, 3), "stride": (2, 2),
        "padding": (1, 1, 1, 1),
    }  # fmt: skip


def test_every_field_is_part_of_the_key():
    found = [
        RESNET,
        PLAIN,
        *(changed(channels=c) for c in (1, 2, 4)),
        changed(channels_last=True),
        changed(dtype="float16"),
        changed(window=(3, 2)),
        changed(stride=(2, 1)),
        changed(padding=(1, 1, 1, 0)),
    ]
    assert len({w.key for w in found}) == len(set(found)) == len(found)
    assert len(sorted(found)) == len(found)


def test_a_convolution_is_written_as_before():
    convolution = dataclasses.replace(RESNET, op="fprop", stem=None)
    assert "stem" not in convolution.to_json() and "image" not in convolution.key


@pytest.mark.parametrize(
    ("fields", "x", "y"),
    [
        ({}, (1, 3, 224, 224), (1, 56, 56, 64)),
        ({"channels_last": True}, (1, 224, 224, 3), (1, 56, 56, 64)),
        (
            {"channels": 1, "window": (0, 0), "stride": (1, 1), "padding": (0,) * 4},
            (1, 1, 224, 224),
            None,
        ),
        ({"stride": (1, 3), "padding": (0, 1, 0, 0)}, (1, 3, 224, 224), (1, 110, 37, 64)),
    ],
)
def test_operands_and_bytes(fields, x, y):
    w = changed(**fields)
    y = y or (1, w.p, w.q, w.k)
    assert w.operand_shapes() == [
        ("x", x, "float32"),
        ("w", (64, 7, 7, 4), "float16"),
        ("bias", (64,), "float16"),
        ("y", y, "float16"),
    ]
    elements = 64 * 7 * 7 * 4 + 64 + y[1] * y[2] * 64
    assert w.bytes_moved == 4 * x[1] * x[2] * x[3] + 2 * elements
    assert w.num_outputs == 1 and w.flops == dataclasses.replace(w, stem=Stem(3)).flops
    without = dataclasses.replace(w, epilogue=Epilogue())
    assert [name for name, _, _ in without.operand_shapes()] == ["x", "w", "y"]


@given(
    *(st.integers(1, 40), st.integers(1, 5), st.integers(1, 4), st.integers(0, 2), st.booleans())
)
def test_pooled_sizes_are_those_of_torch(sums, window, stride, pad, ceil):
    torch = pytest.importorskip("torch")
    assume(2 * pad <= window and sums + 2 * pad >= window)
    given_sums = torch.zeros(1, 1, sums, sums)
    wanted = torch.nn.functional.max_pool2d(given_sums, window, stride, pad, ceil_mode=ceil)
    rows = wanted.shape[2]
    behind = max(0, (rows - 1) * stride + window - pad - sums)  # as far as windows reach
    stem = Stem(1, window=(window,) * 2, stride=(stride,) * 2, padding=(pad, pad, behind, behind))
    assert stem.pooled(sums, sums) == (rows, rows)
    assert stem.fits(sums, sums)


def test_without_a_pool_sizes_are_the_convolutions():
    assert Stem(3).pooled(12, 13) == (12, 13) and not Stem(3).pools


@pytest.mark.parametrize(
    "fields",
    [
        {"dtype": "int8"},
        {"dtype": "float64"},
        {"stride": (0, 1)},
        {"padding": (-1, 0, 0, 0)},
        {"window": (0, 3)},
        {"window": (0, 0)},  # with the stride and padding of a pool
        {"window": (3, -1)},
        {"channels": 5},
        {"padding": (3, 1, 1, 1)},
        {"padding": (1, 1, 4, 1)},
        {"window": (200, 3), "padding": (0, 0, 0, 0)},
    ],
    ids=str,
)
def test_what_is_no_stem(fields):
    with pytest.raises(InvalidWorkload):
        changed(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"op": "fprop"},
        {"stem": None},
        {"groups": 2},
        {"epilogue": Epilogue(residual=True)},
        {"epilogue": Epilogue(affine_relu=True)},
        {"dtype": "int8", "acc_dtype": "int32"},
    ],
    ids=str,
)
def test_workloads_that_are_no_stem(fields):
    with pytest.raises(InvalidWorkload):
        dataclasses.replace(RESNET, **fields)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("channels", 0),
        ("channels", "3"),
        ("channels_last", 1),
        ("dtype", "int8"),
        ("window", [3]),
        ("stride", [0, 1]),
        ("padding", [0, 0]),
        ("more", 1),
    ],
)
def test_json_of_another_type_is_named(field, value):
    data = json.loads(json.dumps(RESNET.to_json()))
    data["stem"][field] = value
    with pytest.raises(InvalidWorkload, match=field):
        Workload.from_json(data)


def test_json_without_channels_is_named():
    data = json.loads(json.dumps(RESNET.to_json()))
    del data["stem"]["channels"]
    with pytest.raises(InvalidWorkload, match="channels"):
        Workload.from_json(data)
