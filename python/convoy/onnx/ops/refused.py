"""Operators that have no place in a network of static shapes, by what is wrong with them."""

from __future__ import annotations

from ...errors import UnsupportedOp
from ..call import Call, Value, converter

_BY_DATA = "NonZero", "Unique", "NonMaxSuppression"
_RANDOM = (
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial",
    "Bernoulli",
)  # fmt: skip


@converter(*_BY_DATA)
def sized_by_data(call: Call) -> Value:
    raise UnsupportedOp(
        f"ONNX operator {call.op} ({call.name!r}), whose result is as large as the data has it",
        "results of known sizes",
        "End the model before it: outputs=[...] of convoy.from_onnx, --end of the command.",
    )


@converter(*_RANDOM)
def random(call: Call) -> Value:
    raise call.unsupported("draws numbers", "a network whose results follow from its inputs")
