"""Gradients of operators and programs against differences of their values, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from convoy import relay
from convoy.errors import InvalidOption, UnsupportedOp
from convoy.relay import nn
from convoy.relay.prelude import Prelude
from convoy.relay.transform import FirstOrderGradient, InferType, gradient

RNG = np.random.default_rng(5)
Build = Callable[..., relay.Expr]

# Operators by their shapes: the gradient is compared by every float argument.
CASES: list[tuple[str, Build, Sequence[Sequence[int]]]] = [
    ("power", relay.power, [(2, 3), (3,)]),
    ("maximum", relay.maximum, [(2, 3), (2, 1)]),
    ("minimum", relay.minimum, [(2, 3), (2, 1)]),
    ("floor_mod", relay.floor_mod, [(2, 3), (2, 3)]),
    ("rsqrt", relay.rsqrt, [(4,)]),
    ("prod", lambda x: relay.prod(x, axis=1), [(2, 3)]),
    ("min", lambda x: relay.min(x, axis=[0, 2], keepdims=True), [(2, 3, 2)]),
    ("cumsum", lambda x: relay.cumsum(x, axis=1), [(2, 4)]),
    ("tile", lambda x: relay.tile(x, (2, 1, 3)), [(2, 3)]),
    ("repeat", lambda x: relay.repeat(x, 3, axis=-2), [(2, 3)]),
    ("pad", lambda x: nn.pad(x, ((1, 2), (0, 3)), pad_value=0.5), [(2, 3)]),
    ("slice", lambda x: relay.strided_slice(x, [5, 0], [0, 6], [-2, 3]), [(6, 7)]),
    ("slice_axes", lambda x: relay.strided_slice(x, [1], [4], [2], axes=[1]), [(2, 5)]),
    ("slice_like", relay.slice_like, [(4, 5), (2, 3)]),
    ("split", lambda x: relay.split(x, (1, 3), axis=1)[1], [(2, 5)]),
    ("gather", lambda x: relay.gather(x, 1, relay.const([[0, 2, 2], [1, 1, 0]])), [(2, 3)]),
    ("take", lambda x: relay.take(x, relay.const([[2, 0], [2, 2]]), axis=1), [(2, 3, 2)]),
    ("take_wrap", lambda x: relay.take(x, relay.const([7, 1]), axis=0, mode="wrap"), [(5, 2)]),
    ("reverse", lambda x: relay.reverse(x, 1), [(2, 3)]),
    ("prelu", lambda x, a: nn.prelu(x, a), [(2, 3, 2), (3,)]),
    ("l2_normalize", lambda x: nn.l2_normalize(x, 0.1, [1]), [(2, 3)]),
    ("layer_norm", nn.layer_norm, [(2, 5), (5,), (5,)]),
    ("instance_norm", nn.instance_norm, [(2, 3, 4), (3,), (3,)]),
    ("group_norm", lambda x, g, b: nn.group_norm(x, g, b, 2), [(1, 4, 3), (4,), (4,)]),
    ("batch_norm", lambda *a: nn.batch_norm(*a)[0], [(2, 3, 2), (3,), (3,), (3,), (3,)]),
    ("dense3", nn.dense, [(2, 4, 3), (5, 3)]),
    ("matmul", lambda a, b: nn.matmul(a, b, transpose_a=True), [(3, 2), (3, 4)]),
    ("batch_matmul", lambda a, b: nn.batch_matmul(a, b, transpose_b=False), [(1, 2, 3), (4, 3, 2)]),
    ("max_pool1d", lambda x: nn.max_pool1d(x, 2, strides=2), [(1, 2, 6)]),
    ("avg_pool2d", lambda x: nn.avg_pool2d(x, (2, 2), layout="NHWC"), [(1, 4, 4, 2)]),
    ("adaptive", lambda x: nn.adaptive_avg_pool2d(x, (2, 1)), [(1, 2, 4, 3)]),
    ("conv2d", lambda x, w: nn.conv2d(x, w, strides=(2, 1), padding=(1, 0, 2, 1), dilation=(1, 2)),
     [(1, 2, 7, 6), (4, 2, 3, 2)]),
    ("grouped", lambda x, w: nn.conv2d(x, w, groups=2, channels=4, kernel_size=(3, 3)),
     [(2, 4, 5, 5), (4, 2, 3, 3)]),
    ("nhwc", lambda x, w: nn.conv2d(x, w, channels=3, kernel_size=(2, 3), data_layout="NHWC",
                                    kernel_layout="HWIO"), [(1, 4, 5, 2), (2, 3, 2, 3)]),
    ("transposed", lambda x, w: nn.conv2d_transpose(x, w, channels=3, kernel_size=(3, 3),
                                                    strides=(2, 2), output_padding=(1, 1)),
     [(1, 2, 3, 3), (2, 3, 3, 3)]),
    ("conv3d", lambda x, w: nn.conv3d(x, w, strides=(2, 1, 2), padding=(1, 0, 1)),
     [(1, 2, 4, 3, 6), (3, 2, 3, 2, 3)]),
]  # fmt: skip


# These compile in float32 alone, and are compared with wider differences.
SINGLE = {"layer_norm", "batch_norm", "transposed"}


def check(build: Build, shapes: Sequence[Sequence[int]], dtype: str) -> None:
    """Compare the gradient of a weighted sum with central differences, at a few elements."""
    half, rtol = (1e-4, 1e-4) if dtype == "float64" else (1e-2, 2e-2)
    params = [relay.var(f"x{i}", shape=s, dtype=dtype) for i, s in enumerate(shapes)]
    body = build(*params)
    body = body if isinstance(body, relay.Expr) else body.astuple()
    forward = relay.Function(params, body)
    InferType()(relay.IRModule.from_expr(forward))
    shape = body.checked_type.concrete_shape
    weight = relay.const(RNG.standard_normal(shape), dtype)
    loss = relay.Function(params, relay.sum(relay.multiply(body, weight)))
    values = [RNG.uniform(0.5, 2.0, s).astype(dtype) for s in shapes]
    run = relay.create_executor().evaluate(gradient(typed(loss)))
    _, grads = run(*values)
    for value, grad in zip(values, grads, strict=True):
        for flat in RNG.choice(value.size, min(4, value.size), replace=False):
            place = np.unravel_index(flat, value.shape)
            near = []
            for step in (half, -half):
                old = value[place]
                value[place] = old + step
                near.append(float(run(*values)[0].numpy()))
                value[place] = old
            slope = (near[0] - near[1]) / (2 * half)
            assert np.isclose(grad.numpy()[place], slope, rtol=rtol, atol=rtol / 10)


def typed(function: relay.Function) -> relay.Function:
    return InferType()(relay.IRModule.from_expr(function))["main"]


@pytest.mark.parametrize(("name", "build", "shapes"), CASES, ids=[c[0] for c in CASES])
def test_operator(name: str, build: Build, shapes: Sequence[Sequence[int]]) -> None:
    check(build, shapes, "float32" if name in SINGLE else "float64")


def grad_of(function: relay.Function, *values: Any, mod: relay.IRModule | None = None) -> list[Any]:
    """The gradients of all parameters, as arrays."""
    made = gradient(function, mod) if mod is not None else gradient(typed(function))
    return [g.numpy() for g in relay.create_executor().evaluate(made)(*values)[1]]


def test_both_branches_of_an_if() -> None:
    x, y = relay.var("x", shape=()), relay.var("y", shape=())
    shared = relay.exp(x)
    taken = relay.If(relay.less(x, y), relay.multiply(shared, y), relay.negative(shared))
    function = relay.Function([x, y], relay.add(taken, shared))
    e = np.exp(np.float32(1))
    assert np.allclose(grad_of(function, np.float32(1), np.float32(3)), [3 * e + e, e])
    assert np.allclose(grad_of(function, np.float32(1), np.float32(0)), [0, 0])


def test_second_and_third_derivative() -> None:
    x = relay.var("x", shape=(3,), dtype="float64")
    function = typed(relay.Function([x], relay.power(x, relay.const(5.0, "float64"))))
    value = np.array([0.5, 1.0, 2.0])
    for factor, exponent in ((5, 4), (20, 3), (60, 2)):
        made = gradient(function)
        found = relay.create_executor().evaluate(made)(value)[1][0].numpy()
        np.testing.assert_allclose(found, factor * value**exponent, rtol=1e-9)
        y = relay.var("x", shape=(3,), dtype="float64")
        pair = relay.TupleGetItem(made(y), 1)
        function = typed(relay.Function([y], relay.TupleGetItem(pair, 0)))


def test_references_closures_and_data_are_resolved() -> None:
    mod = relay.IRModule()
    prelude = Prelude(mod)
    _, cons, nil = mod.get_type("List")
    x = relay.var("x", shape=(), dtype="float64")
    a, b = relay.var("a"), relay.var("b")
    product = relay.Function([a, b], relay.multiply(a, b))
    cell, done = relay.var("cell"), relay.var("done")
    items = cons(x, cons(relay.exp(x), nil()))
    body = prelude.foldl(product, relay.RefRead(cell), items)
    body = relay.Let(done, relay.RefWrite(cell, relay.multiply(x, x)), body)
    body = relay.Let(cell, relay.RefCreate(x), body)
    mod["main"] = relay.Function([x], body)
    InferType()(mod)
    # x^2 * x * e^x
    found = grad_of(mod["main"], np.float64(1.5), mod=mod)
    assert np.allclose(found, (3 * 1.5**2 + 1.5**3) * np.exp(1.5))


def test_a_deep_network_does_not_recurse() -> None:
    x = relay.var("x", shape=(2,))
    value: relay.Expr = x
    for _ in range(5_000):
        value = relay.negative(value)
    made = gradient(relay.Function([x], value))
    assert len([n for n in relay.visit.post_order(made) if isinstance(n, relay.Call)]) == 10_001


def test_a_training_step_of_a_network_learns() -> None:
    data = relay.var("data", shape=(8, 6))
    w1, w2 = relay.var("w1", shape=(16, 6)), relay.var("w2", shape=(3, 16))
    labels = relay.var("labels", shape=(8, 3))
    hidden = nn.relu(nn.dense(data, w1))
    logits = nn.log_softmax(nn.dense(hidden, w2))
    loss = relay.nn.cross_entropy_with_logits(logits, labels)
    step = relay.create_executor().evaluate(
        gradient(typed(relay.Function([data, labels, w1, w2], loss)))
    )
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 6)).astype("float32")
    y = np.eye(3, dtype="float32")[rng.integers(0, 3, 8)]
    weights = [rng.standard_normal(s).astype("float32") * 0.3 for s in ((16, 6), (3, 16))]
    losses = []
    for _ in range(30):
        value, (_, _, *grads) = step(x, y, *weights)
        losses.append(float(value.numpy()))
        weights = [w - 0.5 * g.numpy() for w, g in zip(weights, grads, strict=True)]
    assert losses[-1] < 0.3 * losses[0]


def test_first_order_gradient_of_a_module() -> None:
    x = relay.var("x", shape=(2,))
    mod = FirstOrderGradient()(relay.IRModule.from_expr(relay.Function([x], relay.exp(x))))
    out, (grad,) = relay.create_executor(mod=mod).evaluate()(np.float32([0, 1]))
    np.testing.assert_allclose(out.numpy(), grad.numpy())


def test_a_rule_of_the_user_goes_first() -> None:
    x = relay.var("x", shape=(2,))
    function = relay.Function([x], relay.sinh(x))
    with relay.testing.temp_op_attr.TempOpAttr(
        "sinh", "FPrimalGradient", lambda call, grad: [relay.multiply(grad, relay.const(7.0))]
    ):
        assert grad_of(function, np.float32([0, 1]))[0].tolist() == [7, 7]


def test_mistakes_are_named() -> None:
    x = relay.var("x", shape=(2, 3))
    with pytest.raises(UnsupportedOp, match=r"the gradient of sort.*register_gradient"):
        gradient(typed(relay.Function([x], relay.sort(x))))
    with pytest.raises(InvalidOption, match="higher_order"):
        gradient(typed(relay.Function([x], x)), mode="second_order")
    loop, n = relay.var("loop"), relay.var("n", shape=())
    again = relay.If(relay.less(n, relay.const(9.0)), loop(relay.add(n, n)), n)
    function = relay.Function([n], again, relay.TensorType(()))
    y = relay.var("y", shape=())
    with pytest.raises(UnsupportedOp, match="loop over computed values"):
        gradient(relay.Function([y], relay.Let(loop, function, loop(y))))
