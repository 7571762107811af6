"""Operators that onnxruntime's optimizer and quantizer write."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from convoy import errors  # noqa: E402

from .support import model, run, values  # noqa: E402

RNG = np.random.default_rng(0)


def node(op: str, inputs: list[str], outputs: list[str], **attrs: Any) -> Any:
    return onnx.helper.make_node(op, inputs, outputs, domain="com.microsoft", **attrs)


def bytes_of(*shape: int, dtype: str = "uint8") -> np.ndarray:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min + 1, limits.max, shape).astype(dtype)


def attend(q: Any, k: Any, v: Any, heads: int, added: Any) -> np.ndarray:
    """Attention of (batch, tokens, channels) with ``added`` to the scores."""
    q, k, v = (x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3) for x in (q, k, v))
    scores = np.exp(q @ k.transpose(0, 1, 3, 2) * q.shape[-1] ** -0.5 + added)
    result = scores / scores.sum(-1, keepdims=True) @ v
    return result.transpose(0, 2, 1, 3).reshape(len(q), q.shape[2], -1)


MASKS = {
    "each key": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], "int32"),
    "lengths": np.array([3, 5], "int32"),
}


@pytest.mark.parametrize("mask", MASKS)
def test_attention_of_one_matrix(mask: str) -> None:
    feeds = {"x": values(2, 5, 8), "m": MASKS[mask]}
    weights = {"w": values(8, 20, seed=1), "b": values(20, seed=2)}
    sizes = {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 4]}
    call = node("Attention", ["x", "w", "b", "m"], ["y"], unidirectional=1, **sizes)
    (y,) = run(model([call], feeds, weights=weights), feeds)
    parts = np.split(feeds["x"] @ weights["w"] + weights["b"], [8, 16], 2)
    unseen = np.where(MASKS["each key"][:, None, None] == 0, -1e4, 0)
    later = np.where(np.tri(5, dtype=bool), 0, -np.inf)
    np.testing.assert_allclose(y, attend(*parts, 2, unseen + later), 1e-4, 1e-5)


def test_attention_of_three_tensors() -> None:
    feeds = {"q": values(2, 3, 8), "k": values(2, 5, 8, seed=1), "v": values(2, 5, 4, seed=2)}
    weights = {"b": values(20, seed=3), "shift": values(1, 2, 3, 5, seed=4)}
    inputs = ["q", "k", "v", "b", "", "shift"]
    call = node("MultiHeadAttention", inputs, ["y"], num_heads=2)
    (y,) = run(model([call], feeds, weights=weights), feeds)
    parts = (x + b for x, b in zip(feeds.values(), np.split(weights["b"], [8, 16]), strict=True))
    np.testing.assert_allclose(y, attend(*parts, 2, weights["shift"]), 1e-4, 1e-5)


def test_embeddings() -> None:
    feeds = {"ids": np.array([[3, 1, 4], [9, 2, 6]], "int32"), "mask": np.ones((2, 3), "int32")}
    feeds["mask"][0, 2] = 0
    weights = {"words": values(10, 4), "places": values(3, 4, seed=1), "one": np.ones(4, "f4"),
               "zero": np.zeros(4, "f4")}  # fmt: skip
    inputs = ["ids", "", "words", "places", "", "one", "zero", "mask"]
    call = node("EmbedLayerNormalization", inputs, ["y", "lengths"])
    y, lengths = run(model([call], feeds, ("y", "lengths"), weights), feeds)
    total = weights["words"][feeds["ids"]] + weights["places"]
    spread = total - total.mean(-1, keepdims=True)
    np.testing.assert_allclose(y, spread / total.std(-1, keepdims=True), 1e-3, 1e-4)
    assert lengths.tolist() == [2, 3]


def test_a_product_with_an_activation() -> None:
    feeds, weights = {"x": values(3, 4)}, {"w": values(5, 4), "b": values(5, seed=1)}
    attrs = {"transB": 1, "activation": "LeakyRelu", "activation_alpha": 0.3}
    (y,) = run(model([node("FusedGemm", ["x", "w", "b"], ["y"], **attrs)], feeds, weights=weights),
               feeds)  # fmt: skip
    plain = feeds["x"] @ weights["w"].T + weights["b"]
    np.testing.assert_allclose(y, np.where(plain < 0, 0.3 * plain, plain), 1e-5)


@pytest.mark.parametrize("alpha", [1.0, 0.5])
@pytest.mark.parametrize("quantized", [True, False])
def test_a_quantized_product(quantized: bool, alpha: float) -> None:
    """Scales and zero points for each row of a transposed matrix."""
    feeds = {"x": bytes_of(3, 4)}
    weights = {
        "xs": np.array(0.01, "f4"), "xz": np.array(120, "uint8"), "w": bytes_of(5, 4, dtype="int8"),
        "ws": RNG.uniform(0.01, 0.02, 5).astype("f4"), "wz": np.array([0, 1, 2, 3, 4], "int8"),
        "b": np.array([5, -60, 700, 0, 9], "int32"),
        "ys": np.array(0.05, "f4"), "yz": np.array(128, "uint8"),
    }  # fmt: skip
    names = list(weights) if quantized else list(weights)[:-2]
    call = node("QGemm", ["x", *names], ["y"], transB=1, alpha=alpha)
    (y,) = run(model([call], feeds, weights=weights), feeds)
    exact = (feeds["x"].astype(int) - 120) @ (weights["w"].astype(int) - weights["wz"][:, None]).T
    plain = (exact + weights["b"]) * (alpha * 0.01 * weights["ws"])
    if not quantized:
        np.testing.assert_allclose(y, plain, 1e-5)
    else:
        expected = np.clip(np.round(plain / 0.05) + 128, 0, 255)
        np.testing.assert_allclose(y.astype(int), expected, atol=1)


@pytest.mark.parametrize("points", [True, False])
def test_a_matrix_of_four_bits(points: bool) -> None:
    n, k, block = 3, 20, 16
    feeds = {"x": values(2, k)}
    weights = {"w": bytes_of(n, 2, block // 2), "s": values(n, 2), "z": bytes_of(n, 1)}
    inputs = ["x", "w", "s"] + ["z"] * points
    call = node("MatMulNBits", inputs, ["y"], N=n, K=k, bits=4, block_size=block)
    (y,) = run(model([call], feeds, weights=weights), feeds)

    def halves(numbers: np.ndarray) -> np.ndarray:
        return np.stack([numbers & 15, numbers >> 4], -1).reshape(*numbers.shape[:-1], -1)

    zero = halves(weights["z"])[:, :, None].astype(int) if points else 8
    matrix = ((halves(weights["w"]).astype(int) - zero) * weights["s"][..., None]).reshape(n, -1)
    np.testing.assert_allclose(y, feeds["x"] @ matrix[:, :k].T, 1e-4, 1e-5)


def test_a_recurrent_network_of_quantized_weights() -> None:
    hidden, size = 3, 4
    feeds, outputs = {"x": values(2, 1, size)}, ["y", "h", "c"]
    w, r = (bytes_of(1, n, 4 * hidden, dtype="int8") for n in (size, hidden))
    scales = {"ws": np.array([0.01], "f4"), "wz": np.array([3], "int8"),
              "rs": np.array([0.02], "f4"), "rz": np.array([0], "int8")}  # fmt: skip
    inputs = ["x", "w", "r", *[""] * 5, *scales]
    call = node("DynamicQuantizeLSTM", inputs, outputs, hidden_size=hidden)
    got = run(model([call], feeds, outputs, {"w": w, "r": r, **scales}), feeds)
    plain = {"w": (w - 3.0) * 0.01, "r": r * 0.02}
    plain = {name: x.transpose(0, 2, 1).astype("f4") for name, x in plain.items()}
    call = onnx.helper.make_node("LSTM", ["x", "w", "r"], outputs, hidden_size=hidden)
    for ours, theirs in zip(got, run(model([call], feeds, outputs, plain), feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-4, 1e-5)


@pytest.mark.parametrize("op", ["QLinearConv", "QLinearAveragePool", "MaxPool"])
def test_quantized_windows_with_channels_last(op: str) -> None:
    """What onnxruntime makes of the same operator with channels first."""
    x = bytes_of(1, 2, 5, 4)
    scale, zero = np.array(0.02, "f4"), np.array(120, "uint8")
    weights = {"xs": scale, "xz": zero, "w": bytes_of(3, 2, 3, 3, dtype="int8"), "ws": scale,
               "wz": np.array(0, "int8"), "ys": np.array(0.07, "f4"), "yz": zero}  # fmt: skip
    names = {"QLinearConv": list(weights), "MaxPool": []}.get(op, ["xs", "xz", "ys", "yz"])
    attrs = {"kernel_shape": [3, 3], "pads": [1, 0, 1, 1]}
    domain = "" if op != "QLinearAveragePool" else "com.microsoft"
    first = onnx.helper.make_node(op, ["x", *names], ["y"], domain=domain, **attrs)
    (expected,) = run(model([first], {"x": x}, weights=weights), {"x": x})
    moved = {"x": x.transpose(0, 2, 3, 1).copy()}
    layout = {} if op == "MaxPool" else {"channels_last": 1}
    name = "NhwcMaxPool" if op == "MaxPool" else op
    last = node(name, ["x", *names], ["y"], **attrs, **layout)
    (y,) = run(model([last], moved, weights=weights), moved)
    np.testing.assert_array_equal(y, expected.transpose(0, 2, 3, 1))


def test_choices_of_quantized_values() -> None:
    feeds = {"c": RNG.integers(0, 2, (3, 5)).astype(bool), "x": bytes_of(3, 5), "y": bytes_of(5)}
    points = {"x": (0.02, 120), "y": (0.05, 9), "z": (0.03, 100)}
    weights = {f"{name}s": np.array(scale, "f4") for name, (scale, _) in points.items()}
    weights |= {f"{name}z": np.array(zero, "uint8") for name, (_, zero) in points.items()}
    names = ["c", *(f"{name}{part}" for name in "xyz" for part in ("", "s", "z"))]
    names.remove("z")
    (z,) = run(model([node("QLinearWhere", names, ["z"])], feeds, ["z"], weights), feeds)
    a, b = ((feeds[n].astype("f8") - points[n][1]) * points[n][0] for n in "xy")
    wanted = np.clip(np.round(np.where(feeds["c"], a, b) / 0.03) + 100, 0, 255)
    assert z.dtype == np.uint8 and np.abs(z - wanted).max() <= 1  # ties
    assert (z == wanted).mean() > 0.6


@pytest.mark.parametrize(("batch", "matrix"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_fused_transposes_of_matmuls(batch: int, matrix: int) -> None:
    """Heads as the second axis but one, which onnxruntime's optimizer leaves where they are."""
    x, w = values(2, 3, 5, 4), values(2, 3, 4, 6, seed=1)
    given = x.transpose(0, 1, 3, 2) if matrix else x
    given = given.transpose(2, 0, 1, 3) if batch else given
    feeds = {"x": given.copy(), "w": w}
    attrs = {"transBatchA": batch, "transA": matrix, "alpha": 0.5}
    (y,) = run(model([node("FusedMatMul", ["x", "w"], ["y"], **attrs)], feeds), feeds)
    np.testing.assert_allclose(y, x @ w * 0.5, 1e-5, 1e-6)


@pytest.mark.parametrize("last", [1, 0])
def test_group_norm(last: int) -> None:
    x, weights = values(2, 4, 3, 5), {"g": values(4, seed=1), "b": values(4, seed=2)}
    feeds = {"x": x.transpose(0, 2, 3, 1).copy() if last else x}
    attrs = {"groups": 2, "activation": 1, "channels_last": last}
    (y,) = run(model([node("GroupNorm", ["x", "g", "b"], ["y"], **attrs)], feeds, weights=weights),
               feeds)  # fmt: skip
    y = y.transpose(0, 3, 1, 2) if last else y
    np.testing.assert_allclose(y, _group_norm(x, **weights), 1e-4, 1e-5)


def _group_norm(x: np.ndarray, g: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Two groups and SiLU, (n, c, h, w)."""
    parts = x.reshape(len(x), 2, -1)
    spread = parts - parts.mean(2, keepdims=True)
    y = (spread / np.sqrt(parts.var(2, keepdims=True) + 1e-5)).reshape(x.shape)
    y = y * g[:, None, None] + b[:, None, None]
    return y / (1 + np.exp(-y))


def test_operators_of_diffusion_models() -> None:
    """Channels last: a convolution, the norm of a sum, and both kinds of biases."""
    feeds = {"x": values(1, 5, 5, 3), "skip": values(1, 4, seed=1)}
    weights = {"w": values(4, 3, 3, 3, seed=2), "g": values(4, seed=3), "b": values(4, seed=4)}
    nodes = [
        node("NhwcConv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 1]),
        node("SkipGroupNorm", ["c", "g", "b", "skip", "b"], ["y", "s"], groups=2, activation=1),
        onnx.helper.make_node("Reshape", ["s", "tokens"], ["t"]),
        node("BiasAdd", ["t", "b", "t"], ["u"]),
        node("BiasSplitGelu", ["u", "b"], ["v"]),
    ]
    outputs = ("c", "y", "s", "u", "v")
    weights["tokens"] = np.array([1, 15, 4])
    c, y, s, u, v = run(model(nodes, feeds, outputs, weights), feeds)
    plain = onnx.helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1, 1, 1, 1], strides=[2, 1])
    first = {"x": feeds["x"].transpose(0, 3, 1, 2).copy()}
    filters = {"w": weights["w"].transpose(0, 3, 1, 2).copy(), "b": weights["b"]}
    (expected,) = run(model([plain], first, weights=filters), first)
    np.testing.assert_allclose(c, expected.transpose(0, 2, 3, 1), 1e-4, 1e-5)
    np.testing.assert_allclose(s, c + feeds["skip"][:, None, None] + weights["b"], 1e-5, 1e-6)
    normed = _group_norm(s.transpose(0, 3, 1, 2), weights["g"], weights["b"])
    np.testing.assert_allclose(y, normed.transpose(0, 2, 3, 1), 1e-4, 1e-5)
    np.testing.assert_allclose(u, 2 * s.reshape(1, 15, 4) + weights["b"], 1e-5, 1e-6)
    left, right = np.split(u + weights["b"], 2, -1)
    erf = np.vectorize(math.erf)
    np.testing.assert_allclose(v, left * right * (1 + erf(right / 2**0.5)) / 2, 1e-4, 1e-5)


@pytest.mark.parametrize(
    ("domain", "remedy"),
    [
        ("com.microsoft.nchwc", "ORT_ENABLE_BASIC"),
        ("ai.onnx.ml", "trees"),
        ("mine", "Replace them"),
    ],
)
def test_other_domains_are_refused_with_a_remedy(domain: str, remedy: str) -> None:
    feeds = {"x": values(2, 3)}
    call = onnx.helper.make_node("Frobnicate", ["x"], ["y"], domain=domain)
    with pytest.raises(errors.UnsupportedOp, match=rf"{domain}\.Frobnicate.*{remedy}"):
        run(model([call], feeds), feeds)
