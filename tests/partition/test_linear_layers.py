"""What follows a linear layer of more than two axes is computed on its rows."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from convoy.graph.expr import op_name
from convoy.graph.function import bindings_of
from convoy.measure import reference
from convoy.normalize.normal_form import normalize
from convoy.partition.partition import partition
from convoy.partition.rewrite import rewrite
from convoy.partition.subgraphs import find_subgraphs

from ..graph.nets import Net, random_inputs, relative_error
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
    """A GEMM for each of several matrices; of one it is a GEMM, with the epilogue of one."""
    net = Net((batch, 1, 96, 128))
    other = net.emit(op.tanh(net.x))
    if transposed:
        other = net.emit(op.reshape(other, (batch, 128, 1, 96)))
        other = net.emit(op.permute_dims(other, [0, 2, 1, 3]))
    else:
        other = net.emit(op.permute_dims(other, [0, 1, 3, 2]))
    mod = net.finish(net.relu(net.emit(op.matmul(net.x, other))))
    normal = normalize(mod, dtype="float32")
    (found,) = longest(find_subgraphs(normal))
    assert found.workload.epilogue.name == ("relu" if batch == 1 else "")
    sizes = [shape for _, shape, _ in found.workload.operand_shapes()]
    several = (batch,) * (batch > 1)
    assert sizes == [(*several, 96, 128), (*several, 96, 128), (*several, 96, 96)]
    x = random_inputs(mod)[0]
    a, b = x.reshape(sizes[0]), np.tanh(x).reshape(sizes[1])
    if transposed:
        b = np.tanh(x).reshape(batch, 128, 96).swapaxes(1, 2).reshape(sizes[1])
    operands = {"x": a, "w": b}
    wanted = a @ b.swapaxes(-1, -2)
    (values,) = reference.full(found.workload, operands)
    assert relative_error(values, np.maximum(wanted, 0) if batch == 1 else wanted) < 1e-6
    rewritten = rewrite(normal, {found.id: "product"}, subgraphs=[found])  # checks the operands
    made = [op_name(b.value) for b in bindings_of(rewritten["main"])]
    assert made.count("relax.permute_dims") == transposed  # none of what is a transpose


@pytest.mark.parametrize(
    ("shape", "other"),
    [((1, 1, 16, 32), (1, 1, 32, 16)), ((2, 1, 96, 128), (1, 1, 128, 96)),
     ((1, 2, 4, 512), (1, 2, 512, 512))],
)  # fmt: skip
def test_short_and_spread_products_are_left_to_tvm(shape, other):
    net = Net(shape)
    product = net.emit(op.matmul(net.x, net.emit(op.tanh(net.const(*other)))))
    assert find_subgraphs(normalize(net.finish(net.emit(product)), dtype="float16")) == []


def test_products_of_attention_are_not_offered_alone():
    net = Net((2, 4, 64, 64))
    scores = net.emit(op.matmul(net.x, net.emit(op.permute_dims(net.x, [0, 1, 3, 2]))))
    mod = net.finish(net.emit(op.matmul(net.emit(op.nn.softmax(scores)), net.x)))
    normal = normalize(mod, dtype="float16")
    assert {s.workload.op for s in find_subgraphs(normal)} == {"attention", "matmul"}
    assert {s.workload.op for s in partition(normal).subgraphs} == {"attention"}
