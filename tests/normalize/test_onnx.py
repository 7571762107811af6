"""Models as TVM's ONNX importer leaves them."""

from __future__ import annotations

import numpy as np
import pytest

import convoy
from convoy.partition.subgraphs import find_subgraphs

from ..graph.nets import count_ops
from ..helpers.longest import longest
from .test_normalize import check_same

onnx = pytest.importorskip("onnx")


class Model:
    """A thin ONNX builder with random weights."""

    def __init__(self, *shape):
        self.nodes, self.weights, self.rng = [], [], np.random.default_rng(0)
        self.shape, self.channels = shape, {"x": shape[1]}

    def tensor(self, array):
        name = f"t{len(self.weights)}"
        self.weights.append(onnx.numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, kind, *inputs, channels=None, **attrs):
        out = f"v{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(kind, list(inputs), [out], **attrs))
        self.channels[out] = channels or self.channels[inputs[0]]
        return out

    def conv(self, x, k, r, stride=1, groups=1, bias=False):
        c = self.channels[x]
        w = self.rng.standard_normal((k, c // groups, r, r)) * (2 / (c // groups * r * r)) ** 0.5
        extra = [self.tensor(self.rng.standard_normal(k).astype("float32"))] if bias else []
        return self.node(
            "Conv", x, self.tensor(w.astype("float32")), *extra, channels=k,
            kernel_shape=[r, r], strides=[stride] * 2, pads=[r // 2] * 4, group=groups,
        )  # fmt: skip

    def bn(self, x):
        k = self.channels[x]
        values = [self.rng.uniform(0.5, 1.5, k) for _ in range(4)]
        return self.node(
            "BatchNormalization", x, *[self.tensor(v.astype("float32")) for v in values]
        )

    def finish(self, *outs):
        import tvm.relax.frontend.onnx as frontend

        value = onnx.helper.make_tensor_value_info
        proto = onnx.TensorProto
        made = onnx.helper.make_graph(
            self.nodes, "model", [value("x", proto.FLOAT, self.shape)],
            [value(out, proto.FLOAT, None) for out in outs], self.weights,
        )  # fmt: skip
        opset = [onnx.helper.make_opsetid("", 17)]
        return frontend.from_onnx(onnx.helper.make_model(made, opset_imports=opset))


def test_residual_network_with_classifier():
    m = Model(2, 3, 16, 16)
    x = m.node("Relu", m.bn(m.conv("x", 8, 7, 2)))
    x = m.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    y = m.node("Relu", m.bn(m.conv(x, 8, 3)))
    x = m.node("Relu", m.node("Add", m.bn(m.conv(y, 8, 1, bias=True)), x))
    x = m.node("Flatten", m.node("GlobalAveragePool", x))
    w = m.rng.standard_normal((5, 8)).astype("float32")
    x = m.node("Gemm", x, m.tensor(w), m.tensor(np.ones(5, "float32")), channels=5, transB=1)
    normal = check_same(m.finish(m.node("Softmax", x)))
    ops = count_ops(normal)
    assert "relax.multiply" not in ops and ops["relax.permute_dims"] == 1
    names = [r.workload.epilogue.name for r in longest(find_subgraphs(normal), lambda w: True)]
    assert names == ["bias_relu", "bias_relu", "residual_bias_relu", "bias"]


def test_mobile_network_with_clip_and_depthwise():
    m = Model(1, 3, 12, 12)
    low, high = (m.tensor(np.float32(v)) for v in (0, 6))
    x = m.node("Clip", m.bn(m.conv("x", 8, 3, 2)), low, high)
    y = m.node("Clip", m.bn(m.conv(x, 8, 3, groups=8)), low, high)
    x = m.node("Add", m.bn(m.conv(y, 8, 1)), x)
    x = m.node("HardSwish", x)
    normal = check_same(m.finish(x))
    names = [r.workload.epilogue.name for r in longest(find_subgraphs(normal), lambda w: True)]
    assert names == ["bias_clip[0,6]", "bias_clip[0,6]", "residual_bias_hardswish"]


def test_concatenation_and_swish():
    m = Model(1, 8, 6, 6)
    a = m.conv("x", 8, 1, bias=True)
    a = m.node("Mul", a, m.node("Sigmoid", a))
    b = m.node("AveragePool", "x", kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)
    x = m.node("Concat", a, b, channels=16, axis=1)
    normal = check_same(m.finish(m.conv(x, 4, 3)))
    names = [r.workload.epilogue.name for r in longest(find_subgraphs(normal), lambda w: True)]
    assert names == ["bias_silu", ""]
    assert count_ops(normal)["relax.permute_dims"] == 2


def test_explicit_padding_follows_the_layout():
    m = Model(1, 4, 6, 6)
    pads = m.tensor(np.array([0, 0, 0, 1, 0, 0, 1, 0], "int64"))
    one = m.tensor(np.array(1.0, "float32"))  # zeros would become padding of the convolution
    x = m.node("Pad", m.conv("x", 4, 3), pads, one)
    normal = check_same(m.finish(m.conv(x, 4, 1)))
    ops = count_ops(normal)
    assert ops["relax.nn.pad"] == 1 and ops["relax.permute_dims"] == 2


def test_maximum_of_two_tensors():
    m = Model(1, 4, 6, 6)
    x = m.node("Max", m.conv("x", 4, 3), m.conv("x", 4, 1))
    check_same(m.finish(m.conv(x, 4, 1)))


@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolution_is_an_input_gradient(groups):
    model = Model(2, 8, 5, 6)
    w = model.rng.standard_normal((8, 12 // groups, 4, 3)).astype("float32") * 0.2
    y = model.node(
        "ConvTranspose", "x", model.tensor(w), model.tensor(np.ones(12, "float32")), channels=12,
        kernel_shape=[4, 3], strides=[2, 2], pads=[1, 0, 1, 1], output_padding=[0, 1],
        group=groups,
    )  # fmt: skip
    mod = model.finish(model.node("Relu", y))
    normal = check_same(mod)
    (workload,) = {r.workload for r in find_subgraphs(normal)}
    assert workload.key.startswith("dgrad.n2h10w13c12k8r4s3.st2x2.pd1x0x1x1")
    check_same(mod, "float16", 2e-2)


@pytest.mark.parametrize("kind", ["beside a tensor", "alone", "an element"])
def test_shapes_as_outputs(kind):
    import tvm.relax.frontend.onnx as importer

    helper = onnx.helper
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Shape", ["y"], ["s"])]
    names, weights = ["y", "s"], []
    if kind == "alone":
        names = ["s"]
    elif kind == "an element":
        nodes.append(helper.make_node("Gather", ["s", "one"], ["g"]))
        names, weights = ["y", "g"], [onnx.numpy_helper.from_array(np.array(1), "one")]
    infos = {"y": (1, [2, 3]), "s": (7, [2]), "g": (7, [])}
    x, *outputs = (
        helper.make_tensor_value_info(n, *infos.get(n, infos["y"])) for n in ["x", *names]
    )
    graph = helper.make_graph(nodes, "model", [x], outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    got = convoy.build(importer.from_onnx(model), "llvm").session()(np.ones((2, 3), "float32"))
    expected = {"y": np.ones((2, 3)), "s": np.array([2, 3]), "g": np.array(3)}
    for name, value in zip(names, got, strict=True):
        np.testing.assert_array_equal(value, expected[name])
        assert str(value.dtype) == ("float32" if name == "y" else "int64")
