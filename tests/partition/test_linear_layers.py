"""What follows a linear layer of more than two axes is computed on its rows."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from convoy.normalize.normal_form import normalize
from convoy.partition.rewrite import rewrite
from convoy.partition.subgraphs import find_subgraphs

from ..graph.nets import Net
from ..helpers.longest import longest
from ..normalize.test_normalize import check_same


def epilogues(mod):
    normal = normalize(mod, dtype="float16", pad_channels=1)
    return [s.workload.epilogue.name for s in longest(find_subgraphs(normal))]


def linear(net, x, k):
    c = int(x.ty.shape.values[-1])
    y = net.emit(op.matmul(x, net.const(c, k)))
    return net.emit(op.add(y, net.const(k)))


def block(net, x, width, scale):
    """x + scale * linear(gelu(linear(x))) over the last axis."""
    y = net.emit(op.nn.gelu(linear(net, x, width)))
    y = linear(net, y, int(x.ty.shape.values[-1]))
    y = net.emit(op.multiply(y, scale)) if scale is not None else y
    return net.emit(op.add(x, y))


@pytest.mark.parametrize("scale", [None, (8,), (1, 1, 1, 8)])
def test_blocks_of_transformers_and_convnext(scale):
    net = Net((2, 8, 3, 4), "NHWC")
    x = net.x
    for _ in range(2):
        x = block(net, x, 16, None if scale is None else net.const(*scale))
    mod = net.finish(x)
    assert epilogues(mod) == ["bias_gelu", "residual_bias"] * 2
    check_same(mod)


def test_layer_scale_of_a_convolution():
    net = Net((1, 8, 5, 5))
    y = net.conv(net.x, 8, 1, bias=True)
    y = net.emit(op.multiply(y, net.const(8, 1, 1)))
    mod = net.finish(net.add(net.x, y))
    assert epilogues(mod) == ["residual_bias"]
    check_same(mod)


def test_an_operand_of_another_shape_stays_outside():
    """A factor for each row, and rows that are read twice."""
    net = Net((2, 8, 3, 4), "NHWC")
    y = linear(net, net.x, 16)
    mod = net.finish(net.emit(op.multiply(y, net.const(2, 3, 4, 1))))
    assert epilogues(mod) == ["bias"]
    check_same(mod)
    net = Net((2, 8, 3, 4), "NHWC")
    y = linear(net, net.x, 16)
    mod = net.finish(net.emit(op.nn.gelu(y)), net.emit(op.mean(y, [1])))
    assert epilogues(mod) == ["bias"]
    check_same(mod)


def test_heads_that_split_the_last_axis_stay():
    net = Net((2, 8, 3, 4), "NHWC")
    y = net.emit(op.reshape(linear(net, net.x, 16), (2, 12, 4, 4)))
    factors = relax.const(np.linspace(1, 2, 4, dtype="float32"))
    mod = net.finish(net.emit(op.multiply(y, factors)))
    assert epilogues(mod) == ["bias"]
    check_same(mod)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("batch", [1, 2])
def test_products_of_two_activations(transposed, batch):
    """Of one matrix each they are GEMMs, however many axes of size 1 they have."""
    net = Net((batch, 1, 96, 128))
    other = net.emit(op.tanh(net.x))
    if transposed:
        other = net.emit(op.reshape(other, (batch, 128, 1, 96)))
        other = net.emit(op.permute_dims(other, [0, 2, 1, 3]))
    else:
        other = net.emit(op.permute_dims(other, [0, 1, 3, 2]))
    mod = net.finish(net.relu(net.emit(op.matmul(net.x, other))))
    assert epilogues(mod) == (["relu"] if batch == 1 else [])
    normal = normalize(mod, dtype="float32")
    found = longest(find_subgraphs(normal))
    chosen = {subgraph.id: f"product_{i}" for i, subgraph in enumerate(found)}
    sizes = [[shape for _, shape, _ in s.workload.operand_shapes()] for s in found]
    assert sizes == [[(96, 128), (96, 128), (96, 96)]] * (batch == 1)
    rewrite(normal, chosen, subgraphs=found)  # checks the operands


def test_short_products_are_left_to_tvm():
    net = Net((1, 1, 16, 32))
    other = net.emit(op.permute_dims(net.x, [0, 1, 3, 2]))
    assert epilogues(net.finish(net.emit(op.matmul(net.x, other)))) == []
