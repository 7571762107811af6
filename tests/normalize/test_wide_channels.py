"""Convolutions of 16 bit get multiples of 8 channels, and stay what they were."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tvm
from tvm import relax
from tvm.relax import op

from convoy.graph.expr import op_name, shape_of
from convoy.graph.function import bindings_of
from convoy.ops import DGRAD

from ..graph.nets import Net, count_ops
from .test_moved_rows import calls, constant, network
from .test_normalize import check_same, convs

TOLERANCE = 4e-3  # of float16
RESIZE = "relax.image.resize2d"


def chain(net: Net) -> relax.Expr:
    y = net.relu(net.conv(net.x, 26, bias=True))
    return net.relu(net.conv(net.max_pool(y), 16, r=1))


def residual(net: Net) -> relax.Expr:
    y = net.relu(net.conv(net.x, 18, bias=True))
    return net.conv(net.relu(net.add(y, net.conv(y, 18, bias=True))), 16)


def depthwise(net: Net) -> relax.Expr:
    y = net.relu(net.conv(net.x, 27, r=1, bias=True))
    y = net.emit(op.nn.silu(net.conv(y, 27, groups=27, bias=True)))
    return net.conv(y, 16, r=1)


def excited(net: Net) -> relax.Expr:
    """Scaled by a function of the means, and by one of each pixel."""
    y = net.relu(net.conv(net.x, 20, bias=True))
    mean = net.emit(op.mean(y, [2, 3], keepdims=True))
    scale = net.emit(op.sigmoid(net.conv(mean, 20, r=1, bias=True)))
    y = net.emit(op.multiply(y, scale))
    each = net.emit(op.sigmoid(net.conv(y, 1, bias=True)))
    return net.conv(net.emit(op.multiply(y, each)), 16)


def parts(net: Net) -> relax.Expr:
    """Slices of a convolution, each with a convolution of its own, put side by side."""
    y = net.relu(net.conv(net.x, 52, r=1))
    one, other = (net.emit(op.strided_slice(y, [1], [i], [i + 26])) for i in (0, 26))
    one = net.relu(net.conv(one, 26))
    other = net.relu(net.conv(net.add(one, other), 26))
    return net.conv(net.concat(one, other), 16, r=1)


@pytest.mark.parametrize(
    ("body", "moves"), [(chain, 0), (residual, 0), (depthwise, 0), (excited, 0), (parts, 3)]
)
def test_all_convolutions_are_wide(body: Callable[[Net], relax.Expr], moves: int) -> None:
    net = Net((2, 16, 9, 8))
    normal = check_same(net.finish(body(net)), "float16", TOLERANCE)
    for conv in convs(normal):
        assert not shape_of(conv)[-1] % 8 and not shape_of(conv.args[0])[-1] % 8
    assert count_ops(normal).get("relax.nn.pad", 0) == moves  # of what no convolution made


def shuffled(net: Net, channels: int) -> relax.Expr:
    """Two halves side by side, their channels in turns: one half is convolved, the other kept."""
    y = net.relu(net.conv(net.x, 2 * channels, r=1, bias=True))
    for _ in range(2):
        halves = net.emit(op.split(y, 2, 1))
        kept, other = (net.emit(relax.TupleGetItem(halves, i)) for i in range(2))
        other = net.conv(net.relu(net.conv(other, channels, r=1)), channels, groups=channels)
        other = net.relu(net.conv(other, channels, r=1, bias=True))
        y = net.concat(kept, other)
        n, c, h, w = shape_of(y)
        y = net.emit(op.reshape(y, (n, 2, c // 2, h, w)))
        y = net.emit(op.reshape(net.emit(op.permute_dims(y, [0, 2, 1, 3, 4])), (n, c, h, w)))
    return net.add(
        net.conv(y, 16, r=1), net.conv(net.conv(y, 2 * channels, groups=2 * channels), 16)
    )


@pytest.mark.parametrize("channels", [29, 12, 16])
def test_halves_that_are_shuffled_are_read_where_they_lie(channels: int) -> None:
    """Convolutions of a half read both, and what is padded is padded once where it is made."""
    net = Net((2, 16, 9, 8))
    normal = check_same(net.finish(shuffled(net, channels)), "float16", TOLERANCE)
    for conv in convs(normal):
        assert not shape_of(conv)[-1] % 8 and not shape_of(conv.args[0])[-1] % 8
    of_halves = [shape_of(conv)[-1] for conv in convs(normal) if _reads_a_slice(normal, conv)]
    assert not of_halves
    assert count_ops(normal).get("relax.nn.pad", 0) == 2 * (2 * channels % 8 > 0)


def _reads_a_slice(module: tvm.IRModule, conv: relax.Call) -> bool:
    made = {binding.var: binding.value for binding in bindings_of(module["main"])}
    source = made.get(conv.args[0])
    return isinstance(source, relax.TupleGetItem) or op_name(source) == "relax.strided_slice"


def test_a_half_with_other_readers_is_cut_out() -> None:
    """It is copied anyway; so is a quarter, which would be read four times."""
    net = Net((2, 16, 9, 8))
    y = net.relu(net.conv(net.x, 64))
    half, quarter = (net.emit(op.strided_slice(y, [1], [a], [b])) for a, b in ((0, 32), (32, 48)))
    one, other = net.conv(half, 32, r=1), net.conv(quarter, 32, r=1)
    normal = check_same(net.finish(net.add(net.add(one, half), other)), "float16", TOLERANCE)
    assert sorted(shape_of(conv.args[0])[-1] for conv in convs(normal)) == [16, 16, 32]


@pytest.mark.parametrize("of", ["itself", "each", "part"])
def test_channels_of_an_input_are_cut_out(of: str) -> None:
    """What lies beside them may be NaN."""
    net = Net((2, 48, 9, 8))
    x = net.emit(op.sigmoid(net.x)) if of == "each" else net.x
    if of == "part":
        x = net.emit(relax.TupleGetItem(net.emit(op.split(net.concat(x, x), 2, 1)), 0))
    taken = net.emit(op.strided_slice(x, [1], [0], [32]))
    normal = check_same(net.finish(net.conv(taken, 32, r=1)), "float16", TOLERANCE)
    assert [shape_of(conv.args[0])[-1] for conv in convs(normal)] == [32]


@pytest.mark.parametrize("channels", [1, 12])
def test_transposed_convolutions_are_wide(channels: int) -> None:
    """The last layer of a generator or decoder gives few channels of many."""
    net = Net((2, 20, 5, 4))
    weights = constant(20, channels, 4, 4)
    y = net.emit(op.nn.conv2d_transpose(net.x, weights, strides=2, padding=1))
    normal = check_same(net.finish(net.conv(net.relu(y), 16)), "float16", TOLERANCE)
    (transposed,) = (b.value for b in bindings_of(normal["main"]) if op_name(b.value) == DGRAD)
    assert not shape_of(transposed)[-1] % 8 and not shape_of(transposed.args[0])[-1] % 8


def test_nothing_is_widened_in_float32() -> None:
    net = Net((1, 16, 8, 8))
    (first, _) = convs(check_same(net.finish(chain(net))))
    assert shape_of(first)[-1] == 26


def test_the_last_channels_are_cut_from_results() -> None:
    net = Net((1, 16, 8, 8))
    y = net.conv(net.x, 21, r=1, bias=True)
    normal = check_same(net.finish(y, net.emit(op.nn.softmax(y, 1))), "float16", TOLERANCE)
    assert shape_of(convs(normal)[0])[-1] == 24


@pytest.mark.parametrize("layout", ["permuted", "reversed"])
def test_as_many_columns_as_channels_are_not_taken_for_them(layout: str) -> None:
    net = Net((1, 16, 12, 12))
    y = net.relu(net.conv(net.x, 12, bias=True))
    last = op.strided_slice(y, [1], [11], [-13], [-1]) if layout == "reversed" else y
    if layout == "permuted":
        last = op.permute_dims(y, [0, 3, 1, 2])
    module = net.finish(net.conv(y, 16), net.emit(last))
    normal = check_same(module, "float16", TOLERANCE)
    assert shape_of(convs(normal)[0])[-1] == 16


def test_infinite_constants_end_a_wide_chain() -> None:
    """Zeros of filters times infinity would be no number."""
    net = Net((1, 16, 4, 4))
    low = relax.const(tvm.runtime.tensor([[[[-float("inf")]]]]).numpy().astype("float32"))
    y = net.emit(op.maximum(net.conv(net.x, 12), low))
    normal = check_same(net.finish(net.conv(y, 8)), "float16", TOLERANCE)
    assert convs(normal)


@pytest.mark.parametrize(("classes", "resized"), [(3, 3), (12, 16)])
def test_a_few_results_are_cut_before_they_are_resized(classes: int, resized: int) -> None:
    net = Net((1, 16, 4, 4))
    y = net.emit(op.sigmoid(net.conv(net.x, classes, bias=True)))
    y = net.emit(op.image.resize2d(y, (8, 8), layout="NCHW"))
    normal = check_same(net.finish(y), "float16", TOLERANCE)
    assert shape_of(convs(normal)[0])[-1] % 8 == 0
    (resize,) = (b.value for b in bindings_of(normal["main"]) if op_name(b.value) == RESIZE)
    assert shape_of(resize)[-1] == resized


@pytest.mark.parametrize("classes", [1, 3])
def test_few_results_of_few_channels_stay(classes: int) -> None:
    """Of 8 channels, wide results would move more than the convolution does."""
    net = Net((1, 8, 8, 8))
    normal = check_same(net.finish(net.conv(net.x, classes)), "float16", TOLERANCE)
    assert shape_of(convs(normal)[0])[-1] == classes


def mixer(tokens: int, hidden: int, turned: bool = True) -> tvm.IRModule:
    """Linear layers over the tokens of (2, tokens, 16), which are the last axis for them."""

    def body(e: Callable[[relax.Expr], relax.Var], x: relax.Var) -> relax.Expr:
        y = e(op.permute_dims(e(op.nn.relu(x)), [0, 2, 1])) if turned else e(op.nn.relu(x))
        y = e(op.add(e(op.matmul(y, constant(tokens, hidden))), constant(hidden)))
        y = e(op.matmul(e(op.nn.gelu(y)), constant(hidden, tokens)))
        y = e(op.add(y, constant(tokens)))
        return op.add(x, e(op.permute_dims(y, [0, 2, 1])) if turned else y)

    return network(body, *((2, tokens, 16) if turned else (2, 16, tokens)))


@pytest.mark.parametrize(("tokens", "hidden"), [(49, 24), (50, 36), (48, 33)])
def test_tokens_are_wide_where_they_are_permuted(tokens: int, hidden: int) -> None:
    normal = check_same(mixer(tokens, hidden), "float16", TOLERANCE)
    sizes = [shape_of(call.args[1]) for call in calls(normal, "matmul")]
    wide = [-(-size // 8) * 8 for size in (tokens, hidden)]
    assert sizes == [tuple(wide), tuple(reversed(wide))]


def test_linear_layers_are_not_copied_to_be_wide() -> None:
    """Their data is no copy, and what they give is returned."""
    normal = check_same(mixer(49, 24, turned=False), "float16", TOLERANCE)
    assert [shape_of(call.args[1]) for call in calls(normal, "matmul")] == [(49, 24), (24, 49)]


def perceptron(channels: int, hidden: int) -> tvm.IRModule:
    """A block of ConvNeXt and its kin between convolutions: a norm of the channels of a depthwise
    convolution, two linear layers, and the sum with the data."""
    net = Net((2, 16, 6, 5))
    x = net.conv(net.x, channels, r=1, bias=True)
    y = net.conv(x, channels, groups=channels, bias=True)
    y = net.emit(op.permute_dims(y, [0, 2, 3, 1]))
    y = net.emit(op.nn.layer_norm(y, constant(channels), constant(channels), [-1]))
    y = net.emit(op.add(net.emit(op.matmul(y, constant(channels, hidden))), constant(hidden)))
    y = net.emit(op.matmul(net.emit(op.nn.gelu(y)), constant(hidden, channels)))
    y = net.emit(op.add(y, constant(channels)))
    return net.finish(net.conv(net.add(x, net.emit(op.permute_dims(y, [0, 3, 1, 2]))), 16))


def test_a_linear_layer_whose_result_is_added_to_a_wide_tensor() -> None:
    """It is as wide, and the norm reads the first channels of such a tensor as they lie."""
    normal = check_same(perceptron(20, 48), "float16", TOLERANCE)
    assert [shape_of(call.args[1]) for call in calls(normal, "matmul")] == [(20, 48), (48, 24)]
    assert "relax.nn.pad" not in count_ops(normal)
    (norm,) = calls(normal, "nn.layer_norm")
    values = {binding.var: binding.value for binding in bindings_of(normal["main"])}
    cast = values[norm.args[0]]
    assert op_name(cast) == "relax.astype"
    assert op_name(values[cast.args[0]]) == "relax.strided_slice"
