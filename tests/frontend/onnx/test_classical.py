"""Operators of the domain ai.onnx.ml, against onnx's reference implementation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from convoy import errors  # noqa: E402

from .support import model, run, values  # noqa: E402

DOMAIN = "ai.onnx.ml"


def network(nodes: list[tuple[str, list[str], str, dict[str, Any]]], x: np.ndarray) -> Any:
    made = [
        onnx.helper.make_node(op, inputs, [output], domain=DOMAIN if op[0] != "+" else "", **attrs)
        for op, inputs, output, attrs in nodes
    ]
    proto = model(made, {"x": x}, [output for _, _, output, _ in nodes], {"k": np.array([2, 0])})
    proto.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 3))
    return proto


def test_what_is_around_a_perceptron() -> None:
    from onnx.reference import ReferenceEvaluator

    x = values(3, 4)
    x[1] = 0
    nodes: list[tuple[str, list[str], str, dict[str, Any]]] = [
        ("Scaler", ["x"], "scaled", {"offset": [0.1, 0.2, 0.3, 0.4], "scale": [1.0, 2.0, 3.0, 4]}),
        ("Scaler", ["x"], "halved", {"offset": [0.5], "scale": [0.5]}),
        *(("Normalizer", ["x"], norm, {"norm": norm}) for norm in ("MAX", "L1", "L2")),
        ("Binarizer", ["x"], "signs", {"threshold": 0.25}),
        ("ArrayFeatureExtractor", ["x", "k"], "some", {}),
        ("FeatureVectorizer", ["x", "scaled"], "joined", {"inputdimensions": [4, 4]}),
        ("LinearRegressor", ["x"], "y", {"coefficients": [*map(float, range(8))], "targets": 2,
                                         "intercepts": [0.5, 0.1]}),
    ]  # fmt: skip
    proto = network(nodes, x)
    with np.errstate(invalid="ignore"):
        expected = ReferenceEvaluator(proto).run(None, {"x": x})
    for node, got, want in zip(nodes, run(proto, {"x": x}), expected, strict=True):
        if node[2] == "MAX":  # onnxruntime's is no magnitude
            want = np.divide(x, x.max(axis=1, keepdims=True), where=x != 0, out=np.zeros_like(x))
        known = np.isfinite(want)  # the reference divides zero by zero, onnxruntime does not
        np.testing.assert_allclose(got[known], want[known], 1e-5, err_msg=node[2])
        assert got.shape == want.shape and (got[~known] == 0).all()


def test_other_transforms_are_refused() -> None:
    attrs = {"coefficients": [1.0] * 4, "post_transform": "SOFTMAX"}
    proto = network([("LinearRegressor", ["x"], "y", attrs)], values(3, 4))
    with pytest.raises(errors.UnsupportedOp, match="post_transform SOFTMAX"):
        run(proto, {"x": values(3, 4)})


def test_missing_values_are_replaced() -> None:
    x = values(3, 4)
    x[1, 2] = np.nan
    attrs = {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": np.nan}
    (got,) = run(network([("Imputer", ["x"], "y", attrs)], x), {"x": x})
    np.testing.assert_array_equal(got, np.where(np.isnan(x), np.float32(3), x))


def test_dictionaries_are_refused_with_the_tensor_before_them() -> None:
    proto = network([("+Relu", ["x"], "p", {}), ("ZipMap", ["p"], "y", {})], values(3, 4))
    proto.graph.node[0].op_type = "Relu"
    with pytest.raises(errors.UnsupportedOp, match=r"outputs=\['p'\]"):
        run(proto, {"x": values(3, 4)})
