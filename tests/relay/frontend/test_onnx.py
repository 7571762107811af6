"""ONNX models as Relay, against ONNX's own reference evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from convoy import relay
from convoy.errors import InvalidModel, InvalidOption, UnsupportedOp

from ..running import flatten, run_stock

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

RNG = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def model(
    nodes: Sequence[Any],
    inputs: dict[str, np.ndarray],
    outputs: Sequence[str],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 18,
) -> Any:
    """Make a model whose inputs have the shapes and dtypes of arrays."""
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in inputs.items()
    ]
    graph = helper.make_graph(
        nodes,
        "test",
        infos,
        [onnx.ValueInfoProto(name=n) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def check(proto: Any, inputs: dict[str, np.ndarray], **options: Any) -> None:
    """Compare with the reference evaluator, through the text format too."""
    from onnx.reference import ReferenceEvaluator

    wanted = ReferenceEvaluator(proto).run(None, inputs)
    mod, params = relay.frontend.from_onnx(proto, **options)
    mod = relay.parse(mod.astext()) if not params else mod
    got = run_stock(mod, *inputs.values(), params=params)
    assert len(got) == len(wanted)
    for found, want in zip(got, wanted, strict=True):
        assert found.shape == np.shape(want) and found.dtype == np.asarray(want).dtype
        np.testing.assert_allclose(found, want, rtol=2e-4, atol=2e-5)


def test_network_of_convolutions() -> None:
    """Windows with every kind of padding, pools with ceil_mode, shapes that are computed."""
    x = floats(2, 4, 13, 11)
    weights = {
        "w1": floats(8, 2, 3, 3), "b1": floats(8), "w2": floats(8, 3, 3, 2),
        "scale": floats(8), "bias": floats(8), "mean": floats(8),
        "var": np.abs(floats(8)) + 0.5, "axis": np.array([1, 2]), "last": np.array([-1]),
        "fc": floats(5, 3),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], group=2, strides=[2, 1],
                         auto_pad="SAME_LOWER"),
        helper.make_node("BatchNormalization", ["c1", "scale", "bias", "mean", "var"], ["n1"]),
        helper.make_node("HardSwish", ["n1"], ["a1"]),
        helper.make_node("ConvTranspose", ["a1", "w2"], ["c2"], strides=[2, 3], pads=[1, 0, 0, 1],
                         output_padding=[1, 1]),
        helper.make_node("MaxPool", ["c2"], ["p1"], kernel_shape=[3, 2], strides=[2, 2],
                         pads=[1, 0, 1, 1], ceil_mode=1),
        helper.make_node("AveragePool", ["c2"], ["p2"], kernel_shape=[3, 3], strides=[2, 2],
                         pads=[1, 1, 1, 1], count_include_pad=1),
        helper.make_node("Shape", ["p1"], ["s"], start=0, end=2),
        helper.make_node("Concat", ["s", "last"], ["to"], axis=0),
        helper.make_node("Reshape", ["p1", "to"], ["r"]),
        helper.make_node("Resize", ["p2", "", "factors"], ["big"], mode="linear"),
        helper.make_node("GlobalAveragePool", ["p2"], ["g"]),
        helper.make_node("DepthToSpace", ["a1"], ["d"], blocksize=2, mode="CRD"),
    ]  # fmt: skip
    weights["factors"] = np.array([1, 1, 1.5, 2], "float32")
    check(model(nodes, {"x": x}, ["p1", "p2", "r", "big", "g", "d"], weights), {"x": x})


def test_indexing_reductions_and_arithmetic() -> None:
    x, y = floats(3, 4, 5), floats(4, 1)
    weights = {
        "i": np.array([[0, -1], [2, 1]]), "nd": np.array([[0, 1], [2, -1]]), "upd": floats(2, 5),
        "from": np.array([4, -1]), "till": np.array([-100, 1]), "axes": np.array([2, 1]),
        "step": np.array([-2, -1]), "k": np.array([2]), "pads": np.array([1, 0, 0, 1]),
        "padded": np.array([0, -1]), "neg": np.array([-2]),
    }  # fmt: skip
    nodes = [
        helper.make_node("Gather", ["x", "i"], ["gathered"], axis=1),
        helper.make_node("GatherND", ["x", "nd"], ["tuples"]),
        helper.make_node("ScatterND", ["x", "nd", "upd"], ["scattered"], reduction="add"),
        helper.make_node("Slice", ["x", "from", "till", "axes", "step"], ["sliced"]),
        helper.make_node("TopK", ["x", "k"], ["values", "places"], axis=1, largest=0),
        helper.make_node("Pad", ["x", "pads", "", "padded"], ["wide"], mode="reflect"),
        helper.make_node("ReduceLogSumExp", ["x", "neg"], ["lse"], keepdims=0),
        helper.make_node("ArgMax", ["x"], ["best"], axis=-1, keepdims=0),
        helper.make_node("Mod", ["x", "y"], ["rest"], fmod=1),
        helper.make_node("Round", ["halves"], ["even"]),
        helper.make_node("Div", ["whole", "three"], ["quotient"]),
        helper.make_node("LayerNormalization", ["x", "scale"], ["normal"], axis=1),
        helper.make_node("Einsum", ["x", "x"], ["product"], equation="bij,bkj->bik"),
    ]  # fmt: skip
    weights |= {"three": np.array(3, "int64"), "scale": floats(4, 5)}
    halves = np.array([-1.5, -0.5, 0.5, 1.5, 2.5], "float32")
    inputs = {"x": x, "y": y, "halves": halves, "whole": np.array([-7, 7, 8])}
    names = [n for node in nodes for n in node.output]
    check(model(nodes, inputs, names, weights), inputs)


def test_recurrent_layers_with_lengths() -> None:
    x, lengths = floats(4, 3, 5), np.array([4, 2, 3], "int32")
    weights = {"w": floats(2, 24, 5), "r": floats(2, 24, 6), "b": floats(2, 48)}
    weights |= {"gw": floats(1, 18, 5), "gr": floats(1, 18, 6), "gb": floats(1, 36)}
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r", "b"], ["y", "h", "c"], hidden_size=6,
                         direction="bidirectional"),
        helper.make_node("GRU", ["x", "gw", "gr", "gb"], ["gy", "gh"], hidden_size=6,
                         linear_before_reset=1),
    ]  # fmt: skip
    # The reference evaluator has one direction only, and no lengths.
    one = {n: a[:1] for n, a in weights.items()}
    forward = [helper.make_node("LSTM", ["x", "w", "r", "b"], ["y", "h", "c"], hidden_size=6)]
    check(model([*forward, nodes[1]], {"x": x}, ["y", "h", "gy"], one), {"x": x})
    proto = model(
        [helper.make_node("LSTM", ["x", "w", "r", "b", "n"], ["y", "h"], hidden_size=6,
                          direction="bidirectional")],
        {"x": x, "n": lengths}, ["y", "h"], weights,
    )  # fmt: skip
    mod, _ = relay.frontend.from_onnx(proto)
    y, h = run_stock(mod, x, lengths)
    assert not y[2:, :, 1].any() and y[1, 0, 1].any()
    for sequence, length in enumerate(lengths):  # the same as each sequence alone
        alone = model([nodes[0]], {"x": x[:length, :1]}, ["y", "h"], weights)
        own, _ = relay.frontend.from_onnx(alone)
        wanted, last = run_stock(own, x[:length, sequence : sequence + 1])
        np.testing.assert_allclose(y[:length, :, sequence], wanted[:, :, 0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(h[:, sequence], last[:, 0], rtol=1e-4, atol=1e-5)


def test_loops_are_unrolled_and_branches_kept() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "one"], ["next"]),
            helper.make_node("Identity", ["going"], ["still"]),
            helper.make_node("Mul", ["next", "next"], ["square"]),
        ],
        "body",
        [helper.make_tensor_value_info("n", TensorProto.INT64, []),
         helper.make_tensor_value_info("going", TensorProto.BOOL, []),
         helper.make_tensor_value_info("state", TensorProto.FLOAT, [2])],
        [onnx.ValueInfoProto(name=n) for n in ("still", "next", "square")],
    )  # fmt: skip

    def branch(name: str, op: str) -> Any:
        node = helper.make_node(op, ["last"], [name])
        return helper.make_graph([node], name, [], [onnx.ValueInfoProto(name=name)])

    nodes = [
        helper.make_node("Loop", ["count", "true", "x"], ["last", "squares"], body=body),
        helper.make_node("If", ["which"], ["out"], then_branch=branch("neg", "Neg"),
                         else_branch=branch("exp", "Exp")),
    ]  # fmt: skip
    weights = {"count": np.array(3), "true": np.array(True), "one": np.ones(2, "float32")}
    for which in (True, False):
        inputs = {"x": floats(2), "which": np.array(which)}
        check(model(nodes, inputs, ["out", "squares"], weights), inputs)


def test_parameters_may_stay_variables() -> None:
    x, weights = floats(2, 3), {"w": floats(3, 4), "unused": floats(1)}
    proto = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": x}, ["y"], weights)
    mod, params = relay.frontend.from_onnx(proto, freeze_params=False)
    assert [v.name_hint for v in mod["main"].params] == ["x", "w"]
    assert list(params) == ["w"]
    np.testing.assert_allclose(run_stock(mod, x, params=params)[0], x @ weights["w"], rtol=1e-5)
    assert flatten([params["w"]])[0].shape == (3, 4)


def test_shapes_and_functions_of_the_model() -> None:
    """Shapes are those given; operators that ONNX defines by others need no converter."""
    x = floats(2, 6)
    proto = model([helper.make_node("Mish", ["x"], ["y"])], {"x": x}, ["y"])
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    mod, _ = relay.frontend.from_onnx(proto, {"x": (5, 6)})
    assert mod["main"].params[0].checked_type.concrete_shape == (5, 6)
    loose, _ = relay.frontend.from_onnx(proto)
    assert str(loose["main"].params[0].checked_type) == "Tensor[(?, 6), float32]"
    check(proto, {"x": x}, shape={"x": (2, 6)})


def test_mistakes_are_named() -> None:
    x = floats(2, 3)
    nodes = [helper.make_node("Strange", ["x"], ["s"]), helper.make_node("Other", ["s"], ["y"])]
    strange = model(nodes, {"x": x}, ["y"])
    with pytest.raises(UnsupportedOp, match="without a converter: Other, Strange"):
        relay.frontend.from_onnx(strange)
    shaped = model(
        [helper.make_node("Reshape", ["x", "to"], ["y"])],
        {"x": x, "to": np.array([3, 2])}, ["y"],
    )  # fmt: skip
    with pytest.raises(UnsupportedOp, match=r"Reshape .*shape depends on the model.*constant"):
        relay.frontend.from_onnx(shaped)
    with pytest.raises(InvalidOption, match=r"'z'.*: x, to"):
        relay.frontend.from_onnx(shaped, {"z": (1,)})
    with pytest.raises(InvalidModel, match=r"onnx\.load"):
        relay.frontend.from_onnx("model.onnx")
    broken = model([helper.make_node("Relu", ["nothing"], ["y"])], {"x": x}, ["y"])
    with pytest.raises(InvalidModel, match="'nothing'"):
        relay.frontend.from_onnx(broken)


def test_sizes_may_stay_open() -> None:
    """The batch and the image of a convolutional network; shapes are not computed from them."""
    weights = {"w": floats(4, 3, 3, 3), "b": floats(4), "fc": floats(4, 5), "axes": np.array([2])}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["p"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "fc"], ["m"]),
        helper.make_node("Softmax", ["m"], ["s"]),
        helper.make_node("Unsqueeze", ["s", "axes"], ["y"]),
    ]
    proto = model(nodes, {"x": floats(1, 3, 8, 8)}, ["y"], weights)
    for axis, name in ((0, "n"), (2, "h"), (3, "w")):
        proto.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
    mod, _ = relay.frontend.from_onnx(proto)
    assert str(mod["main"].params[0].checked_type) == "Tensor[(?, 3, ?, ?), float32]"
    for shape in ((2, 3, 8, 6), (1, 3, 4, 4)):
        check(proto, {"x": floats(*shape)})


def test_shapes_of_parameters_are_known() -> None:
    """With parameters as variables too: vectors of int64 stay constants, others are looked up."""
    x = floats(2, 3, 4, 4)
    weights = {"to": np.array([2, -1]), "by": np.array([1, 1, 2, 2], "float32")}
    nodes = [
        helper.make_node("Resize", ["x", "", "by"], ["big"], mode="nearest"),
        helper.make_node("Reshape", ["big", "to"], ["y"]),
    ]
    proto = model(nodes, {"x": x}, ["y"], weights)
    check(proto, {"x": x}, freeze_params=False)


def test_relay_has_its_own_operators() -> None:
    """Scripts look for them: biases, dense layers, pools, quantized tensors."""
    weights = {
        "w": floats(4, 3, 3, 3), "b": floats(4), "fc": floats(5, 4), "fb": floats(5),
        "q": RNG.integers(-9, 9, (4, 4)).astype("int8"), "s": np.array(0.1, "float32"),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"]),
        helper.make_node("GlobalAveragePool", ["c"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "fc", "fb"], ["m"], transB=1),
        helper.make_node("QuantizeLinear", ["m", "s"], ["n"]),
        helper.make_node("DequantizeLinear", ["n", "s"], ["y"]),
    ]
    mod, _ = relay.frontend.from_onnx(model(nodes, {"x": floats(1, 3, 8, 8)}, ["y"], weights))
    found = relay.analysis.list_op_freqs(mod)
    wanted = ["nn.conv2d", "nn.bias_add", "nn.global_avg_pool2d", "nn.dense", "qnn.dequantize"]
    assert [found.get(name) for name in wanted] == [1] * len(wanted)
    assert not found.get("transpose")
