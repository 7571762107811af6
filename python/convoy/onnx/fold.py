"""Compute nodes whose inputs are all known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .call import Call

#: Operators that are folded by onnx's reference implementation. Not among them are those of which
#: several versions exist that it does not tell apart, and those that take long.
_FOLDED = {
    "Abs", "Add", "And", "ArgMax", "ArgMin", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr",
    "BitwiseXor", "Cast", "Ceil", "Clip", "Compress", "Concat", "ConstantOfShape", "Cos",
    "CumSum", "DequantizeLinear", "Div", "Equal", "Erf", "Exp", "Expand", "EyeLike", "Flatten",
    "Floor", "Gather", "GatherElements", "GatherND", "Greater", "GreaterOrEqual", "Identity",
    "IsInf", "IsNaN", "Less", "LessOrEqual", "Log", "MatMul", "MatMulInteger", "Max", "Min",
    "Mod", "Mul", "Neg", "NonZero", "Not", "OneHot", "Or", "Pad", "Pow", "Range", "Reciprocal",
    "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "Relu", "Reshape", "Round",
    "ScatterElements", "ScatterND", "Shape", "Sigmoid", "Sign", "Sin", "Size", "Slice", "Split",
    "Sqrt", "Squeeze", "Sub", "Sum", "Tan", "Tanh", "Tile", "TopK", "Transpose", "Trilu",
    "Unique", "Unsqueeze", "Where", "Xor", "QuantizeLinear", "MelWeightMatrix", "BlackmanWindow",
    "HammingWindow", "HannWindow", "Det", "ReverseSequence",
}  # fmt: skip


#: Operators whose results differ from run to run, and those with subgraphs.
_NEVER = {
    "Bernoulli", "Dropout", "If", "Loop", "Multinomial", "RandomNormal", "RandomNormalLike",
    "RandomUniform", "RandomUniformLike", "Scan", "SequenceMap",
}  # fmt: skip


def fold(call: Call) -> Any:
    """The value (a tuple of several) of a call of known tensors; None: emit it."""
    if call.op not in _FOLDED or not _known(call) or "broadcast" in call.attrs:
        return None
    quick = _QUICK.get(call.op)
    if quick is not None and (found := quick(call)) is not None:
        return found
    return _reference(call)


def fold_any(call: Call) -> Any:
    """The value of a call of known tensors that cannot be emitted; None where there is none."""
    if call.op in _NEVER or not call.inputs or not _known(call):
        return None
    return _reference(call)


def _known(call: Call) -> bool:
    return all(value is None or isinstance(value, np.ndarray) for value in call.inputs)


def _reference(call: Call) -> Any:
    """The value by onnx's reference implementation; None where it cannot tell."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    names = [f"i{i}" if value is not None else "" for i, value in enumerate(call.inputs)]
    attrs = {
        name: onnx.numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        for name, value in call.attrs.items()
    }
    results = [f"o{i}" for i in range(max(1, call.outputs))]
    node = onnx.helper.make_node(call.op, names, results, **attrs)
    feeds = dict(zip(names, call.inputs, strict=True))
    feeds.pop("", None)
    nothing = onnx.TypeProto()
    graph = onnx.helper.make_graph(
        [node],
        "folded",
        [onnx.helper.make_value_info(name, nothing) for name in feeds],
        [onnx.helper.make_value_info(name, nothing) for name in results],
    )
    opset = onnx.helper.make_opsetid("", call.version)
    model = onnx.helper.make_model(graph, opset_imports=[opset])
    try:
        with np.errstate(all="ignore"):
            found = ReferenceEvaluator(model).run(None, feeds)
    except Exception:  # of versions of operators that it does not have, among others
        return None
    if not all(isinstance(value, np.ndarray | np.generic) for value in found):
        return None  # a sequence
    arrays = tuple(np.asarray(value) for value in found)
    return arrays if len(arrays) > 1 else arrays[0]


# ---- what shape computations of exported models consist of


def _cast(call: Call) -> Any:
    import onnx

    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(int(call.attrs["to"]))
    except KeyError:
        return None
    source = call.inputs[0].dtype
    if source.kind not in "biuf" or dtype.kind not in "biuf":
        return None
    with np.errstate(all="ignore"):
        return call.inputs[0].astype(dtype)


def _gather(call: Call) -> Any:
    return np.asarray(np.take(call.inputs[0], call.inputs[1], int(call.attrs.get("axis", 0))))


def _concat(call: Call) -> Any:
    return np.concatenate(call.inputs, int(call.attrs["axis"]))


def _reshape(call: Call) -> Any:
    data, sizes = call.inputs[0], [int(d) for d in call.inputs[1]]
    if not call.attrs.get("allowzero", 0):
        sizes = [data.shape[i] if size == 0 else size for i, size in enumerate(sizes)]
    return data.reshape(sizes)


def _arithmetic(function: Callable[..., Any]) -> Callable[[Call], Any]:
    def run(call: Call) -> Any:
        a, b = call.inputs
        if a.dtype != b.dtype or call.version < 7:
            return None
        with np.errstate(all="ignore"):
            return np.asarray(function(a, b)).astype(a.dtype, copy=False)

    return run


_QUICK: dict[str, Callable[[Call], Any]] = {
    "Cast": _cast,
    "Gather": _gather,
    "Concat": _concat,
    "Reshape": _reshape,
    "Transpose": lambda call: np.transpose(call.inputs[0], call.attrs.get("perm")),
    "Identity": lambda call: call.inputs[0],
    "Add": _arithmetic(np.add),
    "Sub": _arithmetic(np.subtract),
    "Mul": _arithmetic(np.multiply),
}
