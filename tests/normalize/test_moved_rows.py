"""What only moves values stands behind what is computed with them, and is no more than a view."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy.graph.expr import dtype_of, op_name, rank_of, shape_of
from convoy.graph.function import bindings_of
from convoy.normalize.normal_form import normalize
from convoy.normalize.views import reshaped_before

from .test_normalize import check_same

RNG = np.random.default_rng(0)


def constant(*shape: int) -> Any:
    return relax.const((RNG.standard_normal(shape) / 4).astype("float32"))


def network(body: Any, *shape: int) -> Any:
    """A module of ``body(emit, x)``, whose shape is given."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(body(builder.emit, x))
        builder.emit_func_output(result)
    return builder.get()


def calls(mod: Any, name: str) -> list[Any]:
    return [b.value for b in bindings_of(mod["main"]) if op_name(b.value) == f"relax.{name}"]


def names(mod: Any) -> list[str]:
    return [op_name(b.value).removeprefix("relax.") for b in bindings_of(mod["main"])]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_reshape_before_a_permutation(data: Any) -> None:
    shape = data.draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=5))
    axes = data.draw(st.permutations(range(len(shape))))
    result, left = [], math.prod(shape)
    while left > 1 and len(result) < 5:
        result.append(data.draw(st.sampled_from([n for n in range(1, left + 1) if left % n == 0])))
        left //= result[-1]
    result.append(left)
    found = reshaped_before(shape, axes, result)
    if found is not None:
        x = np.arange(math.prod(shape)).reshape(shape)
        behind = x.transpose(axes).reshape(result)
        np.testing.assert_array_equal(x.reshape(found[0]).transpose(found[1]), behind)


def tokens_of(e: Any, image: Any) -> Any:
    n, c, h, w = shape_of(image)
    return e(op.permute_dims(e(op.reshape(image, (n, c, h * w))), [0, 2, 1]))


def image_of(e: Any, tokens: Any, height: int) -> Any:
    n, length, c = shape_of(tokens)
    turned = e(op.permute_dims(tokens, [0, 2, 1]))
    return e(op.reshape(turned, (n, c, height, length // height)))


def mixed_tokens(e: Any, x: Any) -> Any:
    """A depthwise convolution between two linear layers, and one beside the identity."""
    y = image_of(e, e(op.matmul(x, constant(16, 24))), 6)
    y = e(op.nn.conv2d(y, constant(24, 1, 3, 3), padding=1, groups=24))
    y = e(op.nn.gelu(tokens_of(e, e(op.add(y, constant(1, 24, 1, 1))))))
    x = e(op.add(x, e(op.matmul(y, constant(24, 16)))))
    position = e(op.nn.conv2d(image_of(e, x, 6), constant(16, 1, 3, 3), padding=1, groups=16))
    return op.add(x, tokens_of(e, position))


def test_tokens_and_images_are_the_same_values() -> None:
    normal = check_same(network(mixed_tokens, 2, 30, 16))
    found = names(normal)
    assert "permute_dims" not in found
    where = {name: [i for i, n in enumerate(found) if n == name] for name in found}
    before, behind = where["nn.conv2d"]
    assert found[before : before + 4] == ["nn.conv2d", "add", "nn.gelu", "reshape"]
    assert found[behind : behind + 3] == ["nn.conv2d", "add", "reshape"]


def test_a_product_takes_the_shape_of_its_residual_behind_the_sum() -> None:
    """Tokens that are pixels of a convolution, in a network that never leaves images."""

    def body(e: Any, x: Any) -> Any:
        layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
        x = e(op.nn.relu(e(op.nn.conv2d(x, constant(16, 1, 1, 16), **layouts))))
        y = e(op.matmul(e(op.reshape(x, (30, 16))), constant(16, 16)))
        return op.add(x, e(op.reshape(y, (1, 5, 6, 16))))

    (total,) = calls(check_same(network(body, 1, 5, 6, 16)), "add")
    assert rank_of(total) == 2


def test_a_sum_of_two_products_belongs_to_the_later_one() -> None:
    def body(e: Any, x: Any) -> Any:
        first = e(op.matmul(x, constant(16, 16)))
        image = e(op.reshape(first, (2, 5, 6, 16)))
        layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
        second = e(op.nn.conv2d(e(op.nn.relu(image)), constant(16, 1, 1, 16), **layouts))
        return op.add(first, e(op.reshape(second, (2, 30, 16))))

    normal = check_same(network(body, 2, 30, 16))
    (total,) = calls(normal, "add")
    assert rank_of(total) == 4


def test_a_norm_before_a_reshape_is_of_the_last_axis_still() -> None:
    def body(e: Any, x: Any) -> Any:
        y = e(op.matmul(x, constant(16, 16)))
        return op.nn.layer_norm(y, constant(16), constant(16), [2])

    (norm,) = calls(check_same(network(body, 2, 30, 16)), "nn.layer_norm")
    assert rank_of(norm) == 2


def heads(norm: Any) -> Any:
    """Queries, keys and values of one linear layer, of which queries and keys are normed."""

    def body(e: Any, x: Any) -> Any:
        y = e(op.reshape(e(op.matmul(x, constant(16, 48))), (2, 7, 3, 2, 8)))
        y = e(op.permute_dims(y, [2, 0, 3, 1, 4]))
        parts = [e(op.strided_slice(y, [0], [i], [i + 1])) for i in range(3)]
        q, k, v = (e(op.reshape(part, (2, 2, 7, 8))) for part in parts)
        turned = e(op.permute_dims(norm(e, k), [0, 1, 3, 2]))
        weights = e(op.nn.softmax(e(op.matmul(norm(e, q), turned)), -1))
        result = e(op.permute_dims(e(op.matmul(weights, v)), [0, 2, 1, 3]))
        return op.reshape(result, (2, 7, 16))

    return body


NORMS = {
    "none": lambda e, x: x,
    "layer norm": lambda e, x: e(op.nn.layer_norm(x, constant(8), constant(8), [-1])),
    "RMS norm": lambda e, x: e(op.nn.rms_norm(x, constant(8), [-1])),
}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_parts_of_a_permuted_value_are_cut_out_and_normed_where_they_lie(
    name: str, dtype: str
) -> None:
    mod = network(heads(NORMS[name]), 2, 7, 16)
    normal = check_same(mod, dtype, 1e-5 if dtype == "float32" else 5e-3)
    cuts = calls(normal, "strided_slice")
    assert [shape_of(cut.args[0]) for cut in cuts] == [(2, 7, 3, 2, 8)] * 3
    norms = calls(normal, "nn.layer_norm") + calls(normal, "nn.rms_norm")
    assert all(shape_of(norm)[:2] == (2, 7) for norm in norms)


def test_a_cast_stands_with_the_kernel_that_made_a_value() -> None:
    """A layer norm in front of windows that are shifted, permuted and multiplied."""

    def body(e: Any, x: Any) -> Any:
        y = e(op.nn.layer_norm(x, constant(16), constant(16), [-1]))
        y = e(op.take(y, relax.const(np.array([1, 2, 3, 0])), 1))
        y = e(op.permute_dims(e(op.reshape(y, (2, 2, 2, 4, 16))), [0, 1, 3, 2, 4]))
        return op.matmul(e(op.reshape(y, (16, 2, 16))), constant(16, 16))

    normal = check_same(network(body, 2, 4, 4, 16), "float16", 5e-3)
    (norm,) = calls(normal, "nn.layer_norm")
    (made,) = [b.var for b in bindings_of(normal["main"]) if b.value.same_as(norm)]
    assert [dtype_of(c) for c in calls(normal, "astype") if c.args[0].same_as(made)] == ["float16"]
    moved = calls(normal, "take") + calls(normal, "permute_dims")
    assert {dtype_of(call) for call in moved} == {"float16"}


def test_norms_of_narrow_data_are_narrow() -> None:
    """What is added to its own norm stays in 16 bit, as in a network that norms first."""

    def body(e: Any, x: Any) -> Any:
        y = e(op.matmul(x, constant(16, 16)))
        for _ in range(2):
            z = e(op.matmul(y, constant(16, 16)))
            z = e(op.nn.layer_norm(z, constant(16), constant(16), [-1]))
            y = e(op.add(y, z))
        return op.nn.softmax(y, -1)

    normal = check_same(network(body, 2, 4, 16), "float16", 5e-3)
    assert {dtype_of(call) for call in calls(normal, "add")} == {"float16"}
    assert {dtype_of(call) for call in calls(normal, "nn.softmax")} == {"float32"}
    assert names(normal)[-1] == "nn.softmax", "probabilities are not rounded"


def test_a_narrow_part_of_a_wide_value_is_cast_by_itself() -> None:
    def body(e: Any, x: Any) -> Any:
        y = e(op.exp(x))
        first = e(op.strided_slice(y, [1], [0], [1]))
        return op.add(e(op.matmul(first, constant(16, 16))), e(op.sum(y, [1], keepdims=True)))

    normal = normalize(network(body, 2, 30, 16), dtype="float16")
    assert {math.prod(shape_of(call)) for call in calls(normal, "astype")} == {2 * 16}


def layers(e: Any, rows: Any, *widths: int) -> Any:
    """Linear layers with biases, activations and a norm between them."""
    for width in widths:
        rows = e(op.matmul(rows, constant(shape_of(rows)[-1], width)))
        rows = e(op.nn.gelu(e(op.add(rows, constant(1, 1, width)))))
    return e(op.nn.layer_norm(rows, constant(widths[-1]), constant(widths[-1]), [-1]))


def test_permutations_of_rows_around_linear_layers_are_gone() -> None:
    def body(e: Any, x: Any) -> Any:
        tokens = e(op.permute_dims(e(op.nn.relu(x)), [1, 0, 2]))
        y = e(op.permute_dims(layers(e, tokens, 24, 16), [1, 0, 2]))
        return op.add(x, y)

    normal = check_same(network(body, 3, 10, 16))
    assert "permute_dims" not in names(normal)
    assert names(normal)[-2:] == ["add", "reshape"], "the sum is of the product"


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_permutations_behind_layers(data: Any) -> None:
    """In any order and back in any order, with any axes as columns."""
    rows, columns = (2, 3, 5), (2, 4)
    before = data.draw(st.permutations(range(3)))
    behind = data.draw(st.sampled_from([np.argsort(before), data.draw(st.permutations(range(3)))]))
    inside = data.draw(st.permutations(range(5)))
    needed = data.draw(st.booleans())

    def body(e: Any, x: Any) -> Any:
        shape = tuple([*rows, *columns][axis] for axis in np.argsort(inside))
        y = e(op.permute_dims(e(op.reshape(e(op.nn.relu(x)), shape)), inside))
        y = e(op.permute_dims(y, [*before, 3, 4]))
        lead = shape_of(y)[:3]
        y = layers(e, e(op.reshape(y, (1, 30, 8))), 12)
        z = e(op.permute_dims(e(op.reshape(y, (*lead, 12))), [*map(int, behind), 3]))
        return op.add(z, e(op.reshape(y, shape_of(z)))) if needed else z

    check_same(network(body, 30, 8))


def test_windows_are_permuted_before_the_layer_that_widens_them() -> None:
    """Attention reads no view of windows: behind the layer there would be more to copy."""

    def body(e: Any, x: Any) -> Any:
        y = e(op.permute_dims(e(op.reshape(x, (2, 3, 2, 3, 16))), [0, 2, 1, 3, 4]))
        y = e(
            op.reshape(e(op.matmul(e(op.reshape(y, (4, 9, 16))), constant(16, 48))), (4, 9, 3, 16))
        )
        q, k, v = (e(op.take(y, relax.const(i), 2)) for i in range(3))
        weights = e(op.nn.softmax(e(op.matmul(q, e(op.permute_dims(k, [0, 2, 1])))), -1))
        return op.matmul(weights, v)

    moved = calls(check_same(network(body, 6, 6, 16)), "permute_dims")
    assert [shape_of(call)[-1] for call in moved if rank_of(call) == 5] == [16]
