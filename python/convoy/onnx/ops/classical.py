"""Operators of the domain ai.onnx.ml that are around networks: what scikit-learn's pipelines
export beside multi-layer perceptrons."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..call import Call, Value, converter

DOMAIN = "ai.onnx.ml"


def _floats(call: Call, name: str) -> np.ndarray:
    return np.asarray(call.attrs.get(name, []), "float32")


@converter("Scaler", domain=DOMAIN)
def scaler(call: Call) -> Value:
    """(x - offset) * scale, of each feature or of all."""
    shifted = call.do("Sub", call.cast(call.value(0), "float32"), _floats(call, "offset"))
    return call.do("Mul", shifted, _floats(call, "scale"))


@converter("Normalizer", domain=DOMAIN)
def normalizer(call: Call) -> Value:
    """Rows by their largest value, as onnxruntime has it, or by the norm of first or second order;
    rows where that is zero stay."""
    x = call.cast(call.value(0), "float32")
    axes = np.array([-1])
    norm = str(call.attrs.get("norm", "MAX"))
    if norm == "MAX":
        size = call.do("ReduceMax", x, axes)
    else:
        size = call.do("ReduceL1" if norm == "L1" else "ReduceL2", x, axes)
    zero = call.do("Equal", size, np.zeros((), "float32"))
    return call.do("Div", x, call.do("Where", zero, np.ones((), "float32"), size))


@converter("Binarizer", domain=DOMAIN)
def binarizer(call: Call) -> Value:
    above = call.do("Greater", call.value(0), call.const(call.attrs.get("threshold", 0.0)))
    return call.cast(above, call.dtype())


@converter("Imputer", domain=DOMAIN)
def imputer(call: Call) -> Value:
    """Replace missing values, NaN or a number, by that of the feature."""
    kind = "float" if "imputed_value_floats" in call.attrs else "int64"
    missing = call.const(call.attrs.get(f"replaced_value_{kind}", 0))
    x = call.value(0)
    found = call.do("IsNaN", x) if np.isnan(missing) else call.do("Equal", x, missing)
    return call.do("Where", found, call.const(call.attrs[f"imputed_value_{kind}s"]), x)


@converter("ArrayFeatureExtractor", domain=DOMAIN)
def array_feature_extractor(call: Call) -> Value:
    """Columns of the last axis; a vector is one row."""
    x = call.value(0) if call.rank() > 1 else call.reshape(call.value(0), (1, -1))
    return call.do("Gather", x, call.reshape(call.value(1), (-1,)), axis=-1)


@converter("FeatureVectorizer", domain=DOMAIN)
def feature_vectorizer(call: Call) -> Value:
    parts = [call.cast(value, "float32") for value in call.inputs]
    return call.do("Concat", *parts, axis=1)


@converter("LinearRegressor", domain=DOMAIN)
def linear_regressor(call: Call) -> Value:
    """x times the coefficients, (targets, features), and an intercept for each target."""
    if (transform := call.attrs.get("post_transform", "NONE")) != "NONE":
        raise call.unsupported(f"with post_transform {transform}", "NONE")
    targets = int(call.attrs.get("targets", 1))
    matrix: Any = _floats(call, "coefficients").reshape(targets, -1).T
    y = call.do("MatMul", call.cast(call.value(0), "float32"), matrix)
    intercepts = _floats(call, "intercepts")
    return call.do("Add", y, intercepts) if intercepts.size else y
