"""Kernels of training steps that are built as such: as CUDA run on the CPU against numpy, and
what a whole step becomes on a GPU."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy.graph.state import STATE, _Calls
from convoy.lower.executable import lower_calls
from convoy.normalize.normal_form import normalize
from convoy.ops.optimizer import element
from convoy.partition.rewrite import rewrite
from convoy.partition.subgraphs import find_subgraphs
from convoy.tir import multi_tensor, multi_tensor_norm
from convoy.tir.channel_sums import ChannelSums, partial_shape
from convoy.tir.channel_sums_kernels import kernels
from convoy.tir.multi_tensor import Item
from convoy.tir.pool_gradient import MaxPool, maxima, scatter
from convoy.training import Network, Scaling, Sgd, resnet50, small_resnet

from ..emulation.kernels import emulate
from ..helpers.longest import longest

TARGET = tvm.target.Target("nvidia/nvidia-h100", host="llvm")


def run(func, *arrays):
    """Arrays behind a run of a kernel on copies of them."""
    return emulate(func, TARGET, *arrays)


@pytest.mark.parametrize(
    ("rows", "channels", "dtypes", "launches"),
    [
        (392, 256, ("float16", "float16"), 1),
        (25088, 64, ("float16", "float16"), 2),
        (5001, 10, ("float32", "float16"), 1),
        (9000, 512, ("float16", "float32"), 2),
        (3, 7, ("float32", "float32"), 1),
        (70001, 24, ("float32", "float32"), 2),
    ],
)
def test_channel_sums(rows, channels, dtypes, launches):
    sums = ChannelSums(
        "sums", rows, channels, dtypes, 1, 3,
        lambda x, v, first: (x[0] - first, x[1] * v[0]),
        lambda s, v, first: [s[0] + v[0], s[1], first],
        uses_first=True,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, (rows, channels)).astype(dtype) for dtype in dtypes)
    v = rng.uniform(-1, 1, channels).astype("float32")
    outputs = [np.full(channels, np.nan, "float32") for _ in range(3)]
    built = kernels(sums)
    assert len(built) == launches
    if launches == 1:
        *_, first, second, third = run(built[0], a, b, v, *outputs)
    else:
        *_, partial = run(built[0], a, b, v, np.full(partial_shape(sums), np.nan, "float32"))
        *_, first, second, third = run(built[1], a, v, partial, *outputs)
    wide = a.astype(np.float64)
    np.testing.assert_allclose(first, (wide - wide[0]).sum(0) + v, rtol=2e-5, atol=2e-3)
    np.testing.assert_allclose(second, (b.astype(np.float64) * v).sum(0), rtol=2e-5, atol=2e-3)
    np.testing.assert_array_equal(third, a[0].astype("float32"))


def test_updates_of_many_tensors():
    dtypes = [
        ("float32", "float16", "float32"),
        ("float32", "float32", "float32"),
        ("float16", "float16", "float32"),
        ("float32", "float16", "float32"),
    ]
    shapes = [(64, 3, 3, 8), (10,), (7, 3), (4096,)]
    items = [Item(shape, d, (d[0], d[2])) for shape, d in zip(shapes, dtypes, strict=True)]
    shared = {"scale": -1, "applies": -1, "rate": 0}
    momentum = {"rule": "sgd", "momentum": 0.9, "weight_decay": 0.1, "nesterov": True, **shared}
    plain = {"rule": "sgd", "momentum": 0.0, "weight_decay": 0.0, "nesterov": False, **shared}
    items.append(Item((33,), ("float32", "float16"), ("float32",)))
    attributes = [momentum] * len(shapes) + [plain]
    kernel = multi_tensor.kernel("update", items, lambda i, *v: element(*v, attributes[i]), 1)
    rng = np.random.default_rng(0)
    old = [
        [rng.standard_normal(item.shape).astype(dtype) for dtype in item.inputs] for item in items
    ]
    new = [[np.full(item.shape, np.nan, dtype) for dtype in item.outputs] for item in items]
    read, written = ([row[k] for k in range(3) for row in rows if k < len(row)]
                     for rows in (old, new))  # fmt: skip
    arrays = run(kernel, *read, np.full(1, 0.5, "float32"), *written)[len(read) + 1 :]
    count = len(items)
    for i, (w, g, v) in enumerate(old[:-1]):
        g = g.astype("float32") + np.float32(0.1) * w
        v = np.float32(0.9) * v + g
        want = w - np.float32(0.5) * (g + np.float32(0.9) * v)
        limit = 2e-3 if w.dtype == np.float16 else 1e-6
        np.testing.assert_allclose(arrays[i], want, rtol=limit, atol=limit)
        np.testing.assert_allclose(arrays[count + i], v, rtol=1e-6, atol=1e-6)
    w, g = old[-1]
    np.testing.assert_allclose(arrays[count - 1], w - 0.5 * g.astype("float32"), rtol=1e-6)


@given(st.lists(st.tuples(st.integers(1, 3000), st.booleans(), st.integers(0, 2)), min_size=1))
@settings(max_examples=20, deadline=None)
def test_each_tensor_has_the_step_of_its_kind(drawn):
    """Tensors of any number, length, dtype and kind, in any order."""
    items = [
        Item((size,), ("float16" if half else "float32",), ("float32",), str(kind))
        for size, half, kind in drawn
    ]
    kinds = [kind for _, _, kind in drawn]
    kernel = multi_tensor.kernel("scale", items, lambda i, x, _: [x[0] * float(kinds[i] + 2)])
    old = [(np.arange(item.elements) % 999).astype(item.inputs[0]) for item in items]
    new = [np.full(item.shape, np.nan, "float32") for item in items]
    found = run(kernel, *old, *new)[len(items) :]
    for kind, x, y in zip(kinds, old, found, strict=True):
        np.testing.assert_array_equal(y, x.astype("float32") * (kind + 2))


def test_squares_of_many_tensors():
    items = [
        Item(s, (d,), ())
        for s, d in (((64, 300), "float16"), ((5,), "float32"), ((9, 7), "float32"))
    ]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(item.shape).astype(item.inputs[0]) for item in items]
    counts = [multi_tensor_norm.blocks(item) for item in items]
    assert counts == [3, 1, 1]
    kernel = multi_tensor_norm.kernel("squares", items)
    partial = run(kernel, *arrays, np.full(sum(counts), np.nan, "float32"))[-1]
    sums = np.split(partial, np.cumsum(counts)[:-1])
    for part, array in zip(sums, arrays, strict=True):
        assert part.sum() == pytest.approx((array.astype("float64") ** 2).sum(), rel=1e-5)


def test_clipping_takes_two_launches():
    """All gradients in one kernel, whose sums another one adds; one for the scalars."""
    net = small_resnet(8)
    plain, clipped = (
        called(lower_calls(normalize(net.step(Sgd(0.9), scaling).module), TARGET)["main"])
        for scaling in (None, Scaling(clip_norm=1.0))
    )
    assert clipped["squares"] == 1
    assert sum(clipped.values()) <= sum(plain.values()) + 4


def test_tensors_are_grouped_by_what_a_launch_carries():
    items = [Item((8,), ("float32",) * 3, ("float32",) * 2)] * 200
    parts = multi_tensor.groups(items)
    assert [i for part in parts for i in part] == list(range(200))
    assert max(sum(items[i].pointers for i in part) for part in parts) <= multi_tensor.POINTERS


@pytest.mark.parametrize(
    ("size", "channels", "window", "stride", "padding", "dtype"),
    [
        ((14, 14), 64, 3, 2, 1, "float16"),
        ((9, 11), 10, 3, 2, 1, "float32"),
        ((12, 12), 3, 2, 2, 0, "float16"),
        ((10, 9), 8, 5, 2, 2, "float16"),
        ((10, 9), 8, 3, 3, 0, "float32"),
    ],
)
def test_max_pool(size, channels, window, stride, padding, dtype):
    """Many equal values: the gradient goes to the first, as numpy's argmax has it."""
    rng = np.random.default_rng(0)
    x = np.maximum(rng.standard_normal((2, *size, channels)), 0).round(1).astype(dtype)
    wide = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    padded = np.pad(x, wide, constant_values=-np.inf)
    p, q = ((padded.shape[i] - window) // stride + 1 for i in (1, 2))
    windows = np.stack([
        padded[:, i : i + stride * (p - 1) + 1 : stride, j : j + stride * (q - 1) + 1 : stride]
        for i in range(window) for j in range(window)
    ])  # fmt: skip
    y, first = windows.max(0), windows.argmax(0)
    dy = rng.standard_normal(y.shape).astype(dtype)
    expected = np.zeros(padded.shape, np.float64)
    b, i, j, c = np.indices(y.shape)
    np.add.at(expected, (b, i * stride + first // window, j * stride + first % window, c), dy)
    expected = expected[:, padding : padding + size[0], padding : padding + size[1]]
    pool = MaxPool(
        2, *size, channels, p, q, (window, window), (stride, stride), (padding, padding), dtype
    )
    *_, found, which = run(maxima(pool), x, np.zeros_like(y), np.zeros(y.shape, "uint8"))
    np.testing.assert_array_equal(found, y)
    np.testing.assert_array_equal(which, first)
    dx = run(scatter(pool), dy, which, np.zeros(x.shape, dtype))[-1]
    np.testing.assert_allclose(dx, expected, rtol=2e-3, atol=2e-3)


def on_gpu(net, dtype="float16"):
    """A step as it goes to code generation for a GPU, all regions offloaded."""
    step = net.step(Sgd(0.9))
    normal = normalize(step.module, dtype=dtype)
    chosen = longest(find_subgraphs(normal), lambda w: True)
    symbols = {r.id: f"convoy_{i}" for i, r in enumerate(chosen)}
    return step, normal, lower_calls(rewrite(normal, symbols), TARGET)


def called(func):
    names = []
    for block in func.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar):
                names.append(value.op.name_hint.rstrip("0123456789"))
            elif isinstance(value, relax.Call) and isinstance(value.op, relax.ExternFunc):
                names.append("offloaded")
    return Counter(names)


def test_state_of_a_step_is_updated_in_place():
    step, normal, lowered = on_gpu(small_resnet(8))
    func = lowered["main"]
    assert int(func.attrs[STATE]) == len(step.state) == int(normal["main"].attrs[STATE])
    results = _Calls(lowered, func).results()
    for result, param in zip(
        results[-len(step.state) :], func.params[-len(step.state) :], strict=True
    ):
        assert result.same_as(param), param.name


def test_a_value_that_is_read_later_is_not_overwritten():
    """y = x @ w after w' = w + 1: the old w is still needed, so w' is a tensor of its own."""
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    w = relax.Var("w", relax.TensorType((3, 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w], attrs={STATE: 1}):
        with builder.dataflow():
            new = builder.emit_output(
                builder.call_te(lambda t: tvm.te.compute(t.shape, lambda *i: t(*i) + 1.0), w)
            )
            y = builder.emit_output(builder.call_te(lambda a, b: tvm.topi.matmul(a, b), x, w))
        builder.emit_func_output(relax.Tuple([y, new]))
    lowered = lower_calls(builder.get(), TARGET)
    results = _Calls(lowered, lowered["main"]).results()
    assert not results[-1].same_as(lowered["main"].params[-1])


def test_passes_over_activations():
    """Of each norm one kernel for the statistics forward and one backward (two where large), one
    that applies it, one for its gradient; all updates in one kernel."""
    net = small_resnet(8)
    _, normal, lowered = on_gpu(net)
    names = called(lowered["main"])
    norms = sum(name.endswith("_gamma") for name in net.trainable)
    assert names["batch_norm_stats"] == names["batch_norm_grad_stats"] == norms
    assert names["optimizer_update"] == names["round_weights"] == 1
    text = normal.script()
    assert text.count("batch_norm_grad_apply(") == norms
    # Rectifiers right behind a norm are part of its gradient; those behind sums are not.
    apart = text.count("relu_backward(")
    assert text.count('activation="relu"') // 2 == text.count("R.nn.relu(") - apart


@pytest.mark.parametrize("activation", [op.nn.silu, lambda x: op.clip(x, 0, 6)])
def test_activations_behind_norms_take_no_launch(activation):
    """Neither forward nor backward: as many kernels as with a rectifier."""

    def launches(act):
        net = Network(2, 4, 4, 3)
        x = net.batch_norm(net.conv(net.x, 8, 3, name="a"), name="an")
        step = net.finish(net.dense(net.mean(net._emit(act(x))), 5, name="head")).step(Sgd(0.9))
        normal = normalize(step.module, dtype="float16")
        assert "activation_backward(" not in normal.script()
        return called(lower_calls(normal, TARGET)["main"])

    assert sum(launches(activation).values()) == sum(launches(op.nn.relu).values())


@pytest.mark.slow
def test_launches_of_resnet50():
    _, normal, lowered = on_gpu(resnet50(8))
    names = called(lowered["main"])
    regions = find_subgraphs(normal)
    assert names["offloaded"] == 53 + 52 + 53 + 3
    assert Counter(r.workload.op for r in regions if r.workload.op != "matmul") == {
        "fprop": 53, "dgrad": 52, "wgrad": 53,
    }  # fmt: skip
    assert names["optimizer_update"] == 2 and names["round_weights"] == 1
    assert sum(names.values()) < 470
