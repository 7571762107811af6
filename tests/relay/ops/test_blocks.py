"""Windows, blocks, regions of interest and rare operators, against numpy."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from convoy import relay
from convoy.errors import RelayTypeError

from ..running import HEAD, run_stock

RNG = np.random.default_rng(4)
PICTURE = RNG.uniform(-1, 1, (2, 3, 4, 6)).astype("float32")
MATRIX = RNG.uniform(-1, 1, (3, 4)).astype("float32")
PERMUTATION = np.array([2, 0, 3, 1], "int32")


def dilated(x: np.ndarray) -> np.ndarray:
    out = np.full((5, 10), 0.5, "float32")
    out[::2, ::3] = x
    return out


def to_batch(x: np.ndarray) -> np.ndarray:
    x = np.pad(x, [(0, 0), (0, 0), (1, 1), (0, 0)])
    n, c, h, w = x.shape
    x = x.reshape(n, c // 3, 3, h // 2, 2, w).transpose(2, 4, 0, 1, 3, 5)
    return x.reshape(n * 6, c // 3, h // 2, w)


def windows(x: np.ndarray) -> np.ndarray:
    rows = np.lib.stride_tricks.sliding_window_view(x, (2, 3), axis=(2, 3))
    return rows[:, :, ::2, ::1]


def with_diagonal(x: np.ndarray, d: np.ndarray) -> np.ndarray:
    out = x.copy()
    np.fill_diagonal(out, d)
    return out


def dilation(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    view = np.lib.stride_tricks.sliding_window_view(x, (2, 2), axis=(2, 3))
    return (view + w[None, :, None, None]).max((4, 5))


def loss(x: np.ndarray, t: np.ndarray, w: np.ndarray) -> np.ndarray:
    rows = np.arange(len(t))
    return np.float32(-(x[rows, t] * w[t]).sum() / w[t].sum())


Case = tuple[str, list[np.ndarray], Callable[..., Any]]
CASES: dict[str, Case] = {
    "dilate": ("nn.dilate({0}, strides=[2, 3], dilation_value=0.5f)", [MATRIX], dilated),
    "space to batch": (
        "nn.space_to_batch_nd({0}, block_shape=[3, 2], paddings=[[0, 0], [1, 1]])",
        [PICTURE], to_batch,
    ),
    "batch to space": (
        "nn.batch_to_space_nd({0}, block_shape=[3, 2], crops=[[0, 0], [1, 1]])",
        [to_batch(PICTURE)], lambda x: PICTURE,
    ),
    "sliding window": (
        "sliding_window({0}, axis=2, window_shape=[2, 3], strides=[2, 1])", [PICTURE], windows,
    ),
    "upsampling": (
        "nn.upsampling3d(expand_dims({0}, axis=2), scale_d=1f64, scale_h=2f64, scale_w=2f64)",
        [PICTURE], lambda x: x.repeat(2, 2).repeat(2, 3)[:, :, None],
    ),
    "reinterpret": ('reinterpret({0}, dtype="int32")', [MATRIX], lambda x: x.view("int32")),
    "inverse": (
        "invert_permutation({0})", [PERMUTATION], lambda p: np.argsort(p).astype("int32"),
    ),
    "diagonal": ("matrix_set_diag({0}, {1})", [MATRIX, np.float32([7, 8, 9])], with_diagonal),
    "unravel": (
        "unravel_index({0}, {1})", [np.array([5, 11, 0], "int32"), np.array([3, 4], "int32")],
        lambda i, s: np.stack(np.unravel_index(i, tuple(s))).astype("int32"),
    ),
    "search": (
        "searchsorted({0}, {1}, right=True)",
        [np.array([0, 1, 1, 3], "float32"), np.array([1, -2, 9], "float32")],
        lambda s, v: np.searchsorted(s, v, "right").astype("int32"),
    ),
    "advanced index": (
        "adv_index(({0}, {1}, {2}))",
        [PICTURE, np.array([[0], [1]], "int32"), np.array([2, 0, 1], "int32")],
        lambda x, i, j: x[i, j],
    ),
    "loss": (
        "nn.nll_loss({0}, {1}, {2}, ignore_index=-100)",
        [MATRIX, np.array([3, 0, 1], "int32"), np.float32([1, 2, 3, 4])], loss,
    ),
    "fixed point": (
        "fixed_point_multiply({0}, multiplier=1073741824, shift=-1)",
        [np.array([7, -8, 100], "int32")], lambda x: np.floor(x / 4 + 0.5).astype("int32"),
    ),
    "fixed point to the left": (
        "fixed_point_multiply({0}, multiplier=1610612736, shift=2)",
        [np.array([7, -8, 100], "int32")], lambda x: 3 * x,
    ),
    "fixed point of an axis": (
        "fixed_point_multiply_per_axis({0}, {1}, {2}, {3}, is_lshift_required=1,"
        " is_rshift_required=1, axes=[1])",
        [
            np.array([[7, -8, 100], [-3, 5, 9]], "int32"), np.array([2**30] * 3, "int32"),
            np.array([0, 3, 1], "int32"), np.array([1, 0, 1], "int32"),
        ],
        lambda x, m, left, right: np.floor(x * 2.0 ** (left - right - 1) + 0.5).astype("int32"),
    ),
    "dilation": (
        "image.dilation2d({0}, {1})", [PICTURE, RNG.uniform(size=(3, 2, 2)).astype("float32")],
        dilation,
    ),
    "crop": (
        "image.crop_and_resize({0}, {1}, {2}, crop_size=[4, 6])",
        [PICTURE, np.float32([[0, 0, 1, 1]]), np.array([1], "int32")], lambda x, b, i: x[1:],
    ),
    "align": (
        "vision.roi_align({0}, {1}, pooled_size=[2, 3], spatial_scale=1f64, sample_ratio=1)",
        [np.ones((2, 3, 8, 8), "float32"), np.float32([[1, 0, 0, 6, 6]])],
        lambda x, r: np.ones((1, 3, 2, 3), "float32"),
    ),
    "pool": (
        "vision.roi_pool({0}, {1}, pooled_size=[2, 2], spatial_scale=1f64)",
        [PICTURE, np.float32([[1, 0, 0, 3, 3]])],
        lambda x, r: x[1:, :, :4, :4].reshape(1, 3, 2, 2, 2, 2).max((3, 5)),
    ),
}  # fmt: skip


def test_all() -> None:
    """One module, because compiling costs more than computing; through text and JSON."""
    params, values, bodies = [], [], []
    for name, (body, arrays, _) in CASES.items():
        names = [f"%{name.replace(' ', '_')}_{i}" for i in range(len(arrays))]
        params += [
            f"{n}: Tensor[({', '.join(map(str, a.shape))}), {a.dtype}]"
            for n, a in zip(names, arrays, strict=True)
        ]
        values += arrays
        bodies.append(body.format(*names))
    mod = relay.parse(f"{HEAD}def @main({', '.join(params)}) {{ ({', '.join(bodies)}) }}")
    assert relay.structural_equal(mod, relay.parse(mod.astext()))
    got = run_stock(relay.load_json(relay.save_json(mod)), *values)
    for (name, (_, arrays, reference)), value in zip(CASES.items(), got, strict=True):
        want = np.asarray(reference(*arrays))
        assert value.shape == want.shape, name
        assert value.dtype == want.dtype, name
        np.testing.assert_allclose(value, want, 1e-5, 1e-6, err_msg=name)


def test_bits_of_a_number() -> None:
    (bits,) = run_stock(
        relay.parse(f'{HEAD}def @main(%x: float32) {{ reinterpret(%x, dtype="int32") }}'),
        np.float32(1.5),
    )
    assert struct.pack("<i", int(bits)) == struct.pack("<f", 1.5)


@pytest.mark.parametrize(
    "body",
    [
        "nn.dilate(%x, strides=[2])",
        "nn.space_to_batch_nd(%x, block_shape=[2], paddings=[[0, 0]])",
        "nn.batch_to_space_nd(%x, block_shape=[2], crops=[[0, 0]])",
        "sliding_window(%x, axis=0, window_shape=[9, 1], strides=[1, 1])",
        "adv_index((%x, %x, %x, %x))",
        "fixed_point_multiply(%x, multiplier=1, shift=0)",
        'fixed_point_multiply_per_axis(cast(%x, dtype="int32"), 1, 1, 1, axes=[1])',
    ],
)
def test_refused(body: str) -> None:
    with pytest.raises(RelayTypeError, match=r"text:2:"):
        relay.parse(f"{HEAD}def @main(%x: Tensor[(3, 5), float32]) {{ {body} }}", "text")


def test_helpers_make_the_calls_of_the_text() -> None:
    x, boxes = relay.var("x", shape=PICTURE.shape), relay.var("b", shape=(1, 5))
    made = [
        relay.nn.dilate(x, [1, 1, 2, 2]),
        relay.nn.space_to_batch_nd(x, [3, 2], [[0, 0], [1, 1]]),
        relay.nn.batch_to_space_nd(x, [2, 1], [[0, 0], [1, 1]]),
        relay.nn.upsampling3d(relay.expand_dims(x, 2), 1, 2, 2),
        relay.sliding_window(x, 2, [2, 3], [2, 1]),
        relay.reinterpret(x, "int32"),
        relay.matrix_set_diag(x, relay.var("d", shape=(2, 3, 4))),
        relay.searchsorted(relay.var("s", shape=(4,)), x),
        relay.adv_index([x, relay.var("i", shape=(3,), dtype="int32")]),
        relay.fixed_point_multiply(x.astype("int32"), 2**30, -1),
        relay.image.dilation2d(x, relay.var("w", shape=(3, 2, 2))),
        relay.vision.roi_align(x, boxes, (2, 3), 1.0),
        relay.vision.roi_pool(x, boxes, 2, 0.5),
        relay.nn.nll_loss(
            relay.var("p", shape=(3, 4)), relay.var("t", shape=(3,), dtype="int32"),
            relay.var("v", shape=(4,)),
        ),
        relay.image.crop_and_resize(
            x, relay.var("c", shape=(2, 4)), relay.var("k", shape=(2,), dtype="int32"), (4, 4),
            "NCHW",
        ),
        relay.invert_permutation(relay.var("o", shape=(4,), dtype="int32")),
        relay.unravel_index(
            relay.var("u", shape=(4,), dtype="int32"), relay.var("z", shape=(2,), dtype="int32")
        ),
    ]  # fmt: skip
    mod = relay.transform.InferType()(relay.IRModule.from_expr(relay.Tuple(made)))
    assert relay.structural_equal(mod, relay.parse(mod.astext()))
    relay.to_relax(mod)
