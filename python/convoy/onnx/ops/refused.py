"""Operators that have no place in a network of static shapes, by what is wrong with them."""

from __future__ import annotations

import shlex

from ...errors import UnsupportedOp
from ..call import Call, Value, converter

_BY_DATA = "Unique", "NonMaxSuppression"
_RANDOM = (
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial",
    "Bernoulli",
)  # fmt: skip


@converter(*_BY_DATA)
def sized_by_data(call: Call) -> Value:
    raise _end_before(call, "is as large as the data has it", "results of known sizes")


@converter("ZipMap", domain="ai.onnx.ml")
def zip_map(call: Call) -> Value:
    raise _end_before(call, "is dictionaries", "tensors")


def _end_before(call: Call, got: str, expected: str) -> UnsupportedOp:
    """The error that names the tensors which an operator takes, where the model may end instead."""
    nodes = [n for n in call.importer.model.graph.node if n.op_type != "Constant"]
    computed = {name for node in nodes for name in node.output}
    ends = [name for name in call.sources if name in computed]
    return UnsupportedOp(
        f"ONNX operator {call.op} ({call.name!r}), whose result {got}",
        expected,
        f"End the model before it: outputs={ends or '[...]'} of convoy.from_onnx, "
        f"--end {shlex.quote(','.join(ends)) if ends else '...'} of the command.",
    )


@converter(*_RANDOM)
def random(call: Call) -> Value:
    raise call.unsupported("draws numbers", "a network whose results follow from its inputs")
