"""Workloads of int8: which there are, their operands and their JSON."""

from __future__ import annotations

from typing import Any

import pytest

from convoy.errors import InvalidWorkload
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.roofline import roofline_us
from convoy.ir.workload import Workload


def conv(**changed: Any) -> Workload:
    fields: dict[str, Any] = {"op": "fprop", "n": 8, "h": 28, "w": 28, "c": 64, "k": 96}
    fields |= {"r": 3, "s": 3, "dtype": "int8", "out_dtype": "int32", "acc_dtype": "int32"}
    return Workload(**{**fields, **changed})


def clip(low: float, high: float) -> Epilogue:
    return Epilogue(bias=True, activation="clip", clip_min=low, clip_max=high)


@pytest.mark.parametrize(
    ("workload", "bias"),
    [
        (conv(), None),
        (conv(epilogue=Epilogue(bias=True)), (96,)),
        (conv(out_dtype="int8", epilogue=clip(-3, 252)), (96, 4)),
        (conv(groups=32), None),
        (conv(op="matmul", h=1, w=1, r=1, s=1, epilogue=Epilogue(bias=True)), (96,)),
    ],
)
def test_operands(workload: Workload, bias: tuple[int, ...] | None) -> None:
    operands = {name: (shape, dtype) for name, shape, dtype in workload.operand_shapes()}
    assert operands.get("bias") == (bias and (bias, "int32"))
    assert operands["x"][1] == operands["w"][1] == "int8"
    assert operands["y"][1] == workload.out_dtype
    assert Workload.from_json(workload.to_json()) == workload
    assert "int8" in workload.key


@pytest.mark.parametrize(
    "changed",
    [
        {"acc_dtype": "float32"},
        {"out_dtype": "float32"},
        {"dtype": "int32"},
        {"dtype": "float16"},
        {"op": "dgrad"},
        {"op": "matmul", "h": 1, "w": 1, "r": 1, "s": 1, "groups": 2},
        {"epilogue": Epilogue(activation="relu")},
        {"epilogue": Epilogue(residual=True)},
        {"epilogue": clip(0, 255)},
        {"out_dtype": "int8"},
        {"out_dtype": "int8", "epilogue": Epilogue(bias=True)},
        {"out_dtype": "int8", "epilogue": clip(0, 256)},
        {"out_dtype": "int8", "epilogue": clip(-206, 50)},
        {"out_dtype": "int8", "epilogue": clip(0.5, 255)},
        {"out_dtype": "int8", "epilogue": clip(9, 8)},
    ],
)
def test_there_are_no_others(changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidWorkload, match="int8 with acc_dtype int32"):
        conv(**changed)


def test_arithmetic_takes_half_the_time_of_16_bits() -> None:
    large = {"n": 256, "c": 2048, "k": 2048}
    half = conv(**large, dtype="float16", out_dtype="float16", acc_dtype="float32")
    assert roofline_us(conv(**large), Device()) == pytest.approx(roofline_us(half, Device()) / 2)
