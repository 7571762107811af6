"""Linear layers that attention reads, or slices, are one product; others stay."""

from __future__ import annotations

from typing import Any

import pytest
from tvm.relax import op

from convoy.graph.expr import shape_of

from .test_moved_rows import calls, constant, network
from .test_normalize import check_same

ROWS, CHANNELS, HEADS = 10, 16, 2


def linear(e: Any, x: Any, bias: bool = True, columns: int = CHANNELS) -> Any:
    y = e(op.matmul(x, constant(CHANNELS, columns)))
    return e(op.add(y, constant(columns))) if bias else y


def heads(e: Any, x: Any) -> Any:
    rows, columns = shape_of(x)
    apart = e(op.reshape(x, (2, rows // 2, HEADS, columns // HEADS)))
    return e(op.permute_dims(apart, [0, 2, 1, 3]))


def attention(e: Any, q: Any, k: Any, v: Any) -> Any:
    scores = e(op.matmul(heads(e, q), e(op.permute_dims(heads(e, k), [0, 1, 3, 2]))))
    found = e(
        op.permute_dims(e(op.matmul(e(op.nn.softmax(scores, -1)), heads(e, v))), [0, 2, 1, 3])
    )
    return op.reshape(found, (ROWS, -1))


def own_layers(e: Any, x: Any) -> Any:
    return attention(e, linear(e, x), linear(e, x, bias=False), linear(e, x))


def longer_values(e: Any, x: Any) -> Any:
    return attention(e, linear(e, x), linear(e, x), linear(e, x, columns=32))


def normed(e: Any, x: Any) -> Any:
    def norm(y: Any) -> Any:
        rows = e(op.reshape(y, (ROWS, HEADS, CHANNELS // HEADS)))
        return e(op.reshape(e(op.nn.rms_norm(rows, constant(8), [-1])), (ROWS, CHANNELS)))

    return attention(e, norm(linear(e, x)), norm(linear(e, x)), linear(e, x))


def of_two_tensors(e: Any, x: Any) -> Any:
    other = e(op.nn.relu(x))
    return attention(e, linear(e, x), linear(e, other), linear(e, other))


def gated(e: Any, x: Any) -> Any:
    """A layer that something else reads, too."""
    v = linear(e, x)
    return op.multiply(e(attention(e, linear(e, x), linear(e, x), v)), v)


def small(e: Any, x: Any) -> Any:
    """Parts that kernels cannot load where they lie."""
    parts = [linear(e, x, columns=4) for _ in range(3)]
    return attention(e, *parts)


def halves(e: Any, x: Any) -> tuple[Any, Any]:
    rows, columns = shape_of(x)
    x = e(op.reshape(x, (rows, 1, columns)))
    return tuple(e(op.strided_slice(x, [2], [at], [at + columns // 2])) for at in (0, columns // 2))


def conditions(e: Any, x: Any) -> Any:
    """Scales and shifts of two blocks, each pair a layer."""
    y = e(op.reshape(x, (ROWS, 1, CHANNELS)))
    for _ in range(2):
        scale, shift = halves(e, linear(e, x, columns=2 * CHANNELS))
        y = e(op.nn.relu(e(op.add(e(op.multiply(y, scale)), shift))))
    return op.reshape(y, (ROWS, CHANNELS))


def whole_and_half(e: Any, x: Any) -> Any:
    """A layer that is read in parts, and one that is read as it is."""
    scale, shift = halves(e, linear(e, x, columns=2 * CHANNELS))
    y = e(op.add(e(op.multiply(e(op.reshape(linear(e, x), (ROWS, 1, CHANNELS))), scale)), shift))
    return op.reshape(y, (ROWS, CHANNELS))


WIDTHS = {
    conditions: [64],
    whole_and_half: [16, 32],
    own_layers: [48],
    longer_values: [64],
    normed: [48],
    of_two_tensors: [16, 32],
    gated: [16, 32],
    small: [4, 4, 4],
}


@pytest.mark.parametrize("body", WIDTHS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_layers_are_packed(body: Any, dtype: str) -> None:
    normal = check_same(network(body, ROWS, CHANNELS), dtype, 1e-5 if dtype == "float32" else 5e-3)
    products = [shape_of(call) for call in calls(normal, "matmul") if len(shape_of(call)) == 2]
    wanted = [8 * HEADS] * 3 if body is small and dtype == "float16" else WIDTHS[body]
    assert sorted(shape[1] for shape in products) == wanted, "heads of 16 bit have 8 elements"
