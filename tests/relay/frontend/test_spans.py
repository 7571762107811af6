"""Imported expressions have the names of their nodes as spans, which are printed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper

from convoy import relay
from convoy.relay import tvm018 as tvm
from convoy.relay.visit import post_order


def spans(mod: Any) -> dict[str, str]:
    """Return the spans of calls by operator, and of variables by name."""
    found = {}
    for node in post_order(mod["main"].body):
        if isinstance(node, relay.Call):
            found[node.op.name] = str(node.span)
        elif isinstance(node, relay.Var):
            found[node.name_hint] = str(node.span)
    return found


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.act = torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.conv(x)).tanh() + 1.0


def test_of_torchscript() -> None:
    traced = torch.jit.trace(torch.nn.Sequential(Block()), torch.zeros(1, 3, 8, 8))
    mod, _ = relay.frontend.from_pytorch(traced, [("x", (1, 3, 8, 8))])
    assert spans(mod) == {
        "x": "aten::_convolution_0.x:0:0",
        "0.conv.weight": "aten::_convolution_0.0.conv.weight:0:0",
        "0.conv.bias": "aten::_convolution_0.0.conv.bias:0:0",
        "nn.conv2d": "aten::_convolution_0:0:0",
        "nn.bias_add": "aten::_convolution_0:0:0",
        "nn.relu": "aten::relu_0:0:0",
        "tanh": "aten::tanh_0:0:0",
        "add": "aten::add_0:0:0",
    }
    assert "nn.relu(%1) /* ty=Tensor[(1, 4, 6, 6), float32] span=aten::relu_0:0:0 */" in str(mod)
    again = relay.parse(mod.astext())  # as comments
    assert relay.structural_equal(again, mod) and "aten::relu_0" not in str(again)
    scoped, _ = relay.frontend.from_pytorch(
        traced, [("x", (1, 3, 8, 8))], preserve_pytorch_scopes=True
    )
    assert spans(scoped)["nn.conv2d"] == "0.conv:0:0" and spans(scoped)["tanh"] == "0:0:0"
    with tvm.transform.PassContext(config={"relay.frontend.fill_span": False}):
        bare, _ = relay.frontend.from_pytorch(traced, [("x", (1, 3, 8, 8))])
    assert set(spans(bare).values()) == {"None"}
    assert relay.structural_equal(bare, scoped) and relay.structural_equal(bare, mod)


def test_of_exported_programs() -> None:
    program = torch.export.export(Block(), (torch.zeros(1, 3, 8, 8),))
    mod, _ = relay.frontend.from_pytorch(program)
    assert spans(mod)["nn.conv2d"] == "conv2d:0:0" and spans(mod)["tanh"] == "tanh:0:0"


def test_of_onnx() -> None:
    """A name that a comment could not hold is changed."""
    values = helper.make_tensor("b", TensorProto.FLOAT, [3], np.ones(3, "float32"))
    nodes = [
        helper.make_node("Mul", ["a", "b"], ["c"], name="/layer*/ mul"),
        helper.make_node("Erf", ["c"], ["d"]),
    ]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in "ad"]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], [values])
    mod, _ = relay.frontend.from_onnx(onnx.helper.make_model(graph))
    assert spans(mod) == {
        "a": "/layer_/_mul.a:0:0", "multiply": "/layer_/_mul:0:0", "erf": "d:0:0"
    }  # fmt: skip
    assert relay.structural_equal(relay.parse(mod.astext()), mod)
