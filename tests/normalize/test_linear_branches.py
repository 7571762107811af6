"""Branches that are linear in one tensor are one convolution."""

from __future__ import annotations

from typing import Any

import pytest
from tvm.relax import op

from convoy.graph.expr import shape_of
from convoy.normalize.linear_branches import MergeBranches

from .test_moved_rows import calls, constant, names, network
from .test_normalize import check_same


def conv(e: Any, x: Any, size: int | tuple[int, int], groups: int = 1, **options: Any) -> Any:
    rows, columns = (size, size) if isinstance(size, int) else size
    weights = constant(8, 8 // groups, rows, columns)
    options = {"padding": [rows // 2, columns // 2], **options}
    return e(op.nn.conv2d(x, weights, groups=groups, **options))


def normed(e: Any, x: Any) -> Any:
    """An inference batch norm."""
    return e(op.add(e(op.multiply(x, constant(8, 1, 1))), constant(8, 1, 1)))


def rep_vgg(groups: int = 1) -> Any:
    def body(e: Any, x: Any) -> Any:
        both = e(op.add(normed(e, conv(e, x, 3, groups)), normed(e, conv(e, x, 1, groups))))
        return op.nn.relu(normed(e, e(op.add(both, normed(e, x)))))

    return body


def strided(e: Any, x: Any) -> Any:
    return op.add(conv(e, x, 5, strides=2), conv(e, x, (3, 1), strides=2))


def mixer(e: Any, x: Any) -> Any:
    """FastViT's: the identity, and a scaled difference of branches."""
    mixed = e(op.subtract(e(op.add(conv(e, x, 3, 8), x)), normed(e, x)))
    return op.add(x, e(op.multiply(mixed, constant(8, 1, 1))))


def cancelling(e: Any, x: Any) -> Any:
    """FastViT's with equal norms, which are computed once."""
    own = normed(e, x)
    mixed = e(op.subtract(e(op.add(conv(e, x, 3, 8), own)), own))
    return op.add(x, e(op.multiply(mixed, constant(8, 1, 1))))


def dilated(e: Any, x: Any) -> Any:
    wide = conv(e, x, 3, dilation=2, padding=[2, 2])
    return op.subtract(conv(e, x, 1), wide)


def valid(e: Any, x: Any) -> Any:
    """Without padding at the left and at the top, so that pixels are others."""
    return op.add(conv(e, x, 2, padding=[1, 1, 0, 0]), normed(e, x))


ONE = {
    "rep-vgg": rep_vgg(),
    "depthwise": rep_vgg(8),
    "grouped": rep_vgg(2),
    "strided": strided,
    "mixer": mixer,
    "cancelling": cancelling,
    "dilated": dilated,
    "valid": valid,
}


@pytest.mark.parametrize("name", ONE)
def test_branches_are_one_convolution(name: str) -> None:
    normal = check_same(network(ONE[name], 1, 8, 5, 6))
    found = names(normal)
    assert found.count("nn.conv2d") == 1
    assert not {"multiply", "subtract"} & {*found}
    assert all(shape_of(call.args[1]) == (8,) for call in calls(normal, "add")), "but for a bias"


def both_ways(e: Any, x: Any) -> Any:
    return op.add(conv(e, x, (3, 1)), conv(e, x, (1, 3)))


def of_another(e: Any, x: Any) -> Any:
    return op.add(conv(e, x, 3), conv(e, e(op.nn.relu(x)), 1))


def other_dilation(e: Any, x: Any) -> Any:
    return op.add(conv(e, x, 3, dilation=2, padding=[2, 2]), conv(e, x, 3))


def read_twice(e: Any, x: Any) -> Any:
    y = conv(e, x, 3)
    return op.add(e(op.add(y, x)), e(op.nn.relu(y)))


def spread(e: Any, x: Any) -> Any:
    """One pixel and the tensor."""
    return op.add(conv(e, x, (5, 6), padding=[0, 0]), x)


def residual(e: Any, x: Any) -> Any:
    """Part of the convolution's epilogue as it is, and not rounded."""
    return op.add(conv(e, x, 3), x)


APART = {
    "residual": residual,
    "filters of which neither holds the other": both_ways,
    "of another tensor": of_another,
    "other dilation": other_dilation,
    "a branch that is read elsewhere": read_twice,
    "spread": spread,
}


@pytest.mark.parametrize("name", APART)
def test_others_stay(name: str) -> None:
    normal = check_same(network(APART[name], 1, 8, 5, 6))
    largest = [shape_of(call)[1:3] for call in calls(normal, "add")]
    assert largest and max(largest) == (5, 6)


def test_a_long_sum() -> None:
    def body(e: Any, x: Any) -> Any:
        layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}
        y = e(op.nn.conv2d(x, constant(8, 1, 1, 8), **layouts))
        y = e(op.add(y, e(op.multiply(x, constant(8)))))
        for _ in range(1100):
            y = e(op.add(y, x))
        return y

    assert names(MergeBranches()(network(body, 1, 2, 2, 8))) == ["nn.conv2d"]


def test_in_float16() -> None:
    normal = check_same(network(rep_vgg(), 1, 8, 5, 6), "float16", 5e-3)
    assert names(normal).count("nn.conv2d") == 1
