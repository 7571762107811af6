"""Workloads of attention as data: JSON there and back, and what is no workload."""

from __future__ import annotations

import dataclasses
import json

import pytest

from convoy.errors import InvalidWorkload
from convoy.ir.attention import RowView
from convoy.ir.compact import without_defaults
from convoy.ir.workload import Workload

from ..attention import cases

CASES = [
    cases.workload(),
    cases.workload(2, 3, 40, 50, 64, 32, layout="bshd", dtype="bfloat16"),
    cases.workload(2, 3, 49, layout="packed", bias=(1, 2, 3, 49), outer=4, causal=True),
    cases.workload(bias=(1, 1, 2, 17), bias_dtype="float32", zeros=True, scale=2.0),
]


@pytest.mark.parametrize("workload", CASES, ids=lambda w: w.label)
def test_json_there_and_back(workload):
    for fields in (workload.to_json(), without_defaults(workload)):
        again = Workload.from_json(json.loads(json.dumps(fields)))
        assert again == workload and again.key == workload.key


def test_sorts_and_has_a_key_of_its_own():
    shared = [dataclasses.replace(CASES[0], acc_dtype=d) for d in ("float32", "float16")]
    changed = [
        dataclasses.replace(
            CASES[0], attention=dataclasses.replace(CASES[0].attention, **{name: value})
        )
        for name, value in (("scale", 0.5), ("causal", True), ("zeros", True))
    ]
    found = sorted([*CASES, *shared, *changed])
    assert len({w.key for w in found}) == len(set(found)) == len(found) - 1


def test_a_convolution_is_written_as_before():
    conv = Workload("fprop", 1, 8, 8, 16, 16, 3, 3, padding=(1, 1, 1, 1))
    assert "attention" not in conv.to_json()
    assert Workload.from_json(conv.to_json()) == conv


def test_work_and_bytes():
    w = cases.workload(2, 3, 10, 20, 16, 32, bias=(1, 1, 3, 10))
    assert w.flops == 2 * 2 * 3 * 10 * 20 * (16 + 32)
    elements = 2 * 3 * (10 * 16 + 20 * 16 + 20 * 32 + 10 * 32) + 3 * 10 * 20
    assert w.bytes_moved == 2 * elements


@pytest.mark.parametrize(
    "changes",
    [
        {"q": RowView((1, 2, 17, 16), 16, (544, 544, 272, 16))},
        {"k": RowView((1, 2, 17, 16), 0, (544, 544, 544, 16))},
        {"o": RowView((2, 2, 17, 16), 0, (544, 544, 272, 16))},
        {"bias": RowView((16,), 0, (0, 0, 0, 0))},
        {"scale": float("nan")},
        {"outer": 3},
    ],
)
def test_views_that_do_not_fit(changes):
    attention = dataclasses.replace(CASES[0].attention, **changes)
    with pytest.raises(InvalidWorkload):
        dataclasses.replace(CASES[0], attention=attention)


def test_op_and_attention_belong_together():
    for changes in ({"op": "fprop"}, {"attention": None}, {"stride": (2, 2)}):
        with pytest.raises(InvalidWorkload):
            dataclasses.replace(CASES[0], **changes)


@pytest.mark.parametrize("field, value", [("q", 3), ("scale", "1"), ("more", 1), ("outer", 0)])
def test_json_of_another_type_is_named(field, value):
    data = json.loads(json.dumps(CASES[0].to_json()))
    data["attention"][field] = value
    with pytest.raises(InvalidWorkload, match=field):
        Workload.from_json(data)
