"""Models of a few nodes, run by Convoy on the CPU and by onnx's reference implementation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import convoy

onnx = pytest.importorskip("onnx")


def info(name: str, value: np.ndarray | None) -> Any:
    """The declaration of a tensor like ``value``; of an unknown one for None."""
    if value is None:
        return onnx.helper.make_value_info(name, onnx.TypeProto())
    element = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
    return onnx.helper.make_tensor_value_info(name, element, value.shape)


def model(
    nodes: Sequence[Any],
    feeds: Mapping[str, np.ndarray],
    outputs: Sequence[str] = ("y",),
    weights: Mapping[str, np.ndarray] | None = None,
    opset: int = 18,
) -> Any:
    """A model whose inputs are like ``feeds``."""
    graph = onnx.helper.make_graph(
        list(nodes),
        "network",
        [info(name, value) for name, value in feeds.items()],
        [info(name, None) for name in outputs],
        [onnx.numpy_helper.from_array(value, name) for name, value in (weights or {}).items()],
    )
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=9
    )


def run(network: Any, feeds: Mapping[str, np.ndarray], **options: Any) -> list[np.ndarray]:
    """The outputs of a model as Convoy computes them."""
    session = convoy.build(convoy.from_onnx(network, **options), "llvm").session()
    session.run(feeds)
    return [session.output(i).numpy() for i in range(session.num_outputs)]


def check(
    nodes: Sequence[Any],
    feeds: Mapping[str, np.ndarray],
    outputs: Sequence[str] = ("y",),
    weights: Mapping[str, np.ndarray] | None = None,
    opset: int = 18,
    tolerance: float = 1e-5,
) -> list[np.ndarray]:
    """Compare with onnx's reference implementation; returns what it computes."""
    from onnx.reference import ReferenceEvaluator

    network = model(nodes, feeds, outputs, weights, opset)
    expected = ReferenceEvaluator(network).run(None, dict(feeds))
    got = run(network, feeds)
    for name, ours, theirs in zip(outputs, got, expected, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), name
        np.testing.assert_allclose(
            ours.astype("float64"), theirs.astype("float64"), tolerance, tolerance, err_msg=name
        )
    return expected


def values(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    """Uniform values in [-1, 1)."""
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(dtype)
