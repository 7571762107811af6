"""Images whose channels are split into groups keep their channels last, and the few groups that are
added up become element-wise sums."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tvm import relax
from tvm.relax import op

from convoy.graph.expr import op_name
from convoy.graph.function import bindings_of, main_function

from ..graph.nets import Net, count_ops
from .test_normalize import check_same

SHAPE = (2, 8, 6, 5)


def split_attention(net: Net, y: relax.Expr) -> relax.Expr:
    """A weighted sum of two groups, with weights from the mean of their sum."""
    apart = net.emit(op.reshape(y, (2, 2, 8, 6, 5)))
    both = net.emit(op.sum(apart, 1))
    weights = net.conv(net.emit(op.mean(both, [2, 3], keepdims=True)), 16, 1)
    weights = net.emit(op.nn.softmax(net.emit(op.reshape(weights, (2, 2, 8, 1, 1))), 1))
    return net.emit(op.sum(net.emit(op.multiply(apart, weights)), 1))


def paths(net: Net, y: relax.Expr) -> relax.Expr:
    """The largest of two tensors put side by side."""
    other = net.emit(op.reshape(net.conv(y, 16), (2, 1, 16, 6, 5)))
    both = net.emit(op.concat([net.emit(op.reshape(y, (2, 1, 16, 6, 5))), other], 1))
    return net.emit(op.max(both, 1))


def shuffled(net: Net, y: relax.Expr) -> relax.Expr:
    apart = net.emit(op.reshape(y, (2, 4, 4, 6, 5)))
    moved = net.emit(op.permute_dims(apart, [0, 2, 1, 3, 4]))
    return net.emit(op.reshape(moved, (2, 16, 6, 5)))


def averaged(net: Net, y: relax.Expr) -> relax.Expr:
    return net.emit(op.mean(net.emit(op.reshape(y, (2, 8, 2, 6, 5))), 1))


@pytest.mark.parametrize(
    ("body", "moves"), [(split_attention, 0), (paths, 0), (shuffled, 1), (averaged, 0)]
)
def test_groups_between_convolutions(
    body: Callable[[Net, relax.Expr], relax.Expr], moves: int
) -> None:
    net = Net(SHAPE)
    normal = check_same(net.finish(net.conv(body(net, net.conv(net.x, 16)), 8)))
    counts = count_ops(normal)
    assert counts["relax.permute_dims"] == 2 + moves  # one in, one out
    assert not {"relax.sum", "relax.max", "relax.concat"} & set(counts)


def test_sums_of_many_and_of_neighbours_stay() -> None:
    net = Net(SHAPE)
    rows = net.emit(op.reshape(net.x, (16, 10, 3)))
    normal = check_same(net.finish(net.emit(op.sum(rows, 2)), net.emit(op.sum(rows, 1))))
    assert count_ops(normal)["relax.sum"] == 2


def test_indexed_images_keep_their_layout() -> None:
    """Padding by reflection between convolutions."""
    net = Net(SHAPE)
    y = net.emit(op.take(net.conv(net.x, 8), relax.const([1, 0, 1, 2, 3, 4, 5, 4]), 2))
    y = net.emit(op.take(y, relax.const([1, 0, 1, 2, 3, 4, 3]), 3))
    normal = check_same(net.finish(net.conv(y, 8, padding=(0, 0))))
    names = [op_name(binding.value) for binding in bindings_of(main_function(normal)[1])]
    assert names.count("relax.permute_dims") == 2
