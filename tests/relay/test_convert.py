"""Every converter against numpy.

Cases are put into one module a family, because compiling costs more than computing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from convoy import relay
from convoy.relay.convert import supported_ops

from . import reference
from .running import run_stock

RNG = np.random.default_rng(0)


def uniform(*shape: int, low: float = -2, high: float = 2, dtype: str = "float32") -> np.ndarray:
    return RNG.uniform(low, high, shape).astype(dtype)


class Case:
    """An expression of variables, and what it must compute."""

    def __init__(
        self, build: Callable[..., Any], want: Callable[..., Any], *arrays: np.ndarray
    ) -> None:
        self.build, self.want, self.arrays = build, want, arrays


def check(cases: dict[str, Case], tolerance: float = 2e-5) -> None:
    """Compile all cases as one module, run it and compare each result."""
    params, results, arrays = [], [], []
    for name, case in cases.items():
        mine = [
            relay.var(f"{name}_{i}", shape=a.shape, dtype=str(a.dtype))
            for i, a in enumerate(case.arrays)
        ]
        built = case.build(*mine)
        results.append(built.astuple() if isinstance(built, relay.TupleWrapper) else built)
        params += mine
        arrays += case.arrays
    mod = relay.IRModule.from_expr(relay.Function(params, relay.Tuple(results)))
    mod = relay.parse(relay.transform.InferType()(mod).astext())  # through the text as well
    got = iter(run_stock(mod, *arrays))
    for name, case in cases.items():
        want = case.want(*case.arrays)
        for part in want if isinstance(want, (list, tuple)) else [want]:
            value = next(got)
            np.testing.assert_allclose(value, part, tolerance, tolerance, err_msg=name)
            assert value.shape == np.shape(part), name


X = uniform(2, 6, 5, 4)
POSITIVE = uniform(2, 6, 5, 4, low=0.1, high=3)
UNIT = uniform(2, 6, low=-0.9, high=0.9)
INTS = RNG.integers(-9, 10, (3, 4)).astype("int32")


def test_unary() -> None:
    numpy_of = {
        **{
            n: getattr(np, n)
            for n in ["abs", "exp", "floor", "ceil", "sign", "sin", "cos", "tan", "sinh", "cosh"]
        },
        **{n: getattr(np, n) for n in ["tanh", "trunc", "negative"]},
        "asin": np.arcsin,
        "acos": np.arccos,
        "atan": np.arctan,
        "asinh": np.arcsinh,
        "atanh": np.arctanh,
        "sigmoid": reference.sigmoid,
        "erf": reference.erf,
        "round": np.round,
        "fast_exp": np.exp,
        "fast_tanh": np.tanh,
        "fast_erf": reference.erf,
        "copy": lambda x: x,
        "zeros_like": np.zeros_like,
        "ones_like": np.ones_like,
        "isnan": np.isnan,
        "isinf": np.isinf,
        "isfinite": np.isfinite,
    }
    cases = {n: Case(getattr(relay, n), f, UNIT) for n, f in numpy_of.items()}
    for name, function in {
        "log": np.log,
        "log2": np.log2,
        "log10": np.log10,
        "sqrt": np.sqrt,
        "rsqrt": lambda x: 1 / np.sqrt(x),
        "acosh": lambda x: np.arccosh(x),
    }.items():
        cases[name] = Case(getattr(relay, name), function, uniform(7, low=1.1, high=3))
    cases["bitwise_not"] = Case(relay.bitwise_not, np.invert, INTS)
    cases["logical_not"] = Case(relay.logical_not, np.logical_not, UNIT > 0)
    check(cases)


def test_binary() -> None:
    a, b = uniform(3, 1, 4), uniform(2, 4, low=0.5, high=2)
    numpy_of: dict[str, Any] = {
        **{
            n: getattr(np, n)
            for n in ["add", "subtract", "multiply", "divide", "maximum", "minimum"]
        },
        **{n: getattr(np, n) for n in ["equal", "not_equal", "less", "less_equal", "greater"]},
        "greater_equal": np.greater_equal,
        "floor_divide": np.floor_divide,
        "floor_mod": np.mod,
        "mod": np.fmod,
    }
    cases = {n: Case(getattr(relay, n), f, a, b) for n, f in numpy_of.items()}
    cases["power"] = Case(relay.power, np.power, np.abs(a), b)
    i, j = INTS, RNG.integers(1, 5, (3, 1)).astype("int32")
    for name, function in {
        "divide": lambda x, y: np.trunc(x / y).astype("int32"),
        "trunc_divide": lambda x, y: np.trunc(x / y).astype("int32"),
        "mod": np.fmod,
        "trunc_mod": np.fmod,
        "floor_divide": np.floor_divide,
        "floor_mod": np.mod,
        "bitwise_and": np.bitwise_and,
        "bitwise_or": np.bitwise_or,
        "bitwise_xor": np.bitwise_xor,
        "left_shift": lambda x, y: np.left_shift(x, y),
        "right_shift": np.right_shift,
    }.items():
        cases[f"int_{name}"] = Case(getattr(relay, name), function, i, j)
    for name in ("logical_and", "logical_or", "logical_xor"):
        cases[name] = Case(getattr(relay, name), getattr(np, name), i > 0, j > 2)
    check(cases)


def test_elementwise_with_attributes() -> None:
    check(
        {
            "clip": Case(lambda x: relay.clip(x, -1, 1), lambda x: np.clip(x, -1, 1), X),
            "clip_int": Case(
                lambda x: relay.clip(x, -1e9, 3), lambda x: np.minimum(x, 3), INTS.astype("int8")
            ),
            "relu": Case(relay.nn.relu, lambda x: np.maximum(x, 0), X),
            "leaky": Case(relay.nn.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x), X),
            "prelu": Case(
                relay.nn.prelu,
                lambda x, a: np.where(x > 0, x, x * a[:, None, None]),
                X,
                uniform(6),
            ),
            "cast": Case(lambda x: relay.cast(x, "int32"), lambda x: x.astype("int32"), X),
            "cast_like": Case(relay.cast_like, lambda x, y: x.astype("int32"), X, INTS),
            "where": Case(relay.where, np.where, X > 0, X, POSITIVE),
        }
    )


def test_normalisations() -> None:
    g, b, m, v = uniform(6), uniform(6), uniform(6), uniform(6, low=0.5, high=2)
    wide = uniform(2, 5, 4, 6)
    check(
        {
            "batch_norm": Case(
                lambda *a: relay.nn.batch_norm(*a, epsilon=1e-3)[0],
                lambda x, g, b, m, v: reference.affine(
                    (x - reference.along(m, x, 1)) / np.sqrt(reference.along(v, x, 1) + 1e-3),
                    g, b, 1,
                ),
                X, g, b, m, v,
            ),
            "batch_norm_nhwc": Case(
                lambda *a: relay.nn.batch_norm(*a, axis=3, scale=False)[0],
                lambda x, g, b, m, v: (x - m) / np.sqrt(v + 1e-5) + b,
                wide, g, b, m, v,
            ),
            "layer_norm": Case(
                relay.nn.layer_norm,
                lambda x, g, b: reference.affine(reference.normalized(x, (3,)), g, b, 3),
                wide, g, b,
            ),
            "instance_norm": Case(
                relay.nn.instance_norm,
                lambda x, g, b: reference.affine(reference.normalized(x, (2, 3)), g, b, 1),
                X, g, b,
            ),
            "group_norm": Case(
                lambda x, g, b: relay.nn.group_norm(x, g, b, num_groups=3),
                lambda x, g, b: reference.affine(
                    reference.normalized(x.reshape(2, 3, 2, 5, 4), (2, 3, 4)).reshape(x.shape),
                    g, b, 1,
                ),
                X, g, b,
            ),
            "bias_add": Case(
                relay.nn.bias_add, lambda x, b: x + reference.along(b, x, 1), X, b
            ),
            "bias_add_last": Case(
                lambda x, b: relay.nn.bias_add(x, b, axis=-1), lambda x, b: x + b, wide, b
            ),
            "softmax": Case(
                lambda x: relay.nn.softmax(x, axis=1), lambda x: reference.softmax(x, 1), X
            ),
            "fast_softmax": Case(relay.nn.fast_softmax, lambda x: reference.softmax(x, -1), UNIT),
            "log_softmax": Case(
                relay.nn.log_softmax, lambda x: np.log(reference.softmax(x, -1)), UNIT
            ),
            "lrn": Case(
                lambda x: relay.nn.lrn(x, size=3, alpha=0.1),
                lambda x: reference.lrn(x, 3, 2, 0.1, 0.75),
                X,
            ),
            "l2": Case(
                lambda x: relay.nn.l2_normalize(x, 1e-4, [1]),
                lambda x: x / np.sqrt(np.maximum((x * x).sum(1, keepdims=True), 1e-4)),
                X,
            ),
            "dropout": Case(relay.nn.dropout, lambda x: x, X),
            "cross_entropy": Case(
                relay.nn.cross_entropy,
                lambda x, t: np.float32(-(t * np.log(x)).sum() / x.shape[0]),
                uniform(4, 3, low=0.1, high=1), uniform(4, 3),
            ),
            "cross_entropy_with_logits": Case(
                relay.nn.cross_entropy_with_logits,
                lambda x, t: np.float32(-(t * x).sum() / x.shape[0]),
                uniform(4, 3), uniform(4, 3),
            ),
        }
    )  # fmt: skip


def test_matrix_products() -> None:
    a, b = uniform(3, 4), uniform(4, 5)
    x, y = uniform(2, 3, 4), uniform(2, 4, 5)
    check(
        {
            "dense": Case(relay.nn.dense, lambda a, w: a @ w.T, a, uniform(5, 4)),
            "dense_3d": Case(relay.nn.dense, lambda a, w: a @ w.T, x, uniform(5, 4)),
            "matmul": Case(relay.nn.matmul, lambda a, b: a @ b, a, b),
            "matmul_tt": Case(
                lambda a, b: relay.nn.matmul(a, b, transpose_a=True, transpose_b=True),
                lambda a, b: a.T @ b.T,
                uniform(4, 3), uniform(5, 4),
            ),
            "batch_matmul": Case(
                relay.nn.batch_matmul, lambda x, y: x @ y.transpose(0, 2, 1), x, uniform(2, 5, 4)
            ),
            "batch_matmul_n": Case(
                lambda x, y: relay.nn.batch_matmul(x, y, transpose_b=False),
                lambda x, y: x @ y,
                x, y,
            ),
            "batch_matmul_t": Case(
                lambda x, y: relay.nn.batch_matmul(x, y, transpose_a=True, transpose_b=False),
                lambda x, y: x.transpose(0, 2, 1) @ y,
                uniform(2, 4, 3), y,
            ),
            "einsum": Case(
                lambda a, b: relay.einsum([a, b], "ij,jk->ki"), lambda a, b: (a @ b).T, a, b
            ),
        }
    )  # fmt: skip


def test_shapes() -> None:
    check(
        {
            "reshape": Case(
                lambda x: relay.reshape(x, (0, -1, 2)), lambda x: x.reshape(2, -1, 2), X
            ),
            "reshape_copy": Case(
                lambda x: relay.reshape(x, (-3, -2)), lambda x: x.reshape(12, 5, 4), X
            ),
            "reshape_split": Case(
                lambda x: relay.reshape(x, (0, -4, 2, -1, -2)),
                lambda x: x.reshape(2, 2, 3, 5, 4),
                X,
            ),
            "reverse_reshape": Case(
                lambda x: relay.reverse_reshape(x, (-1, 0)), lambda x: x.reshape(60, 4), X
            ),
            "reshape_like": Case(relay.reshape_like, lambda x, y: x.reshape(y.shape), X,
                                 uniform(12, 20)),
            "squeeze": Case(relay.squeeze, lambda x: x[0, :, 0], uniform(1, 3, 1)),
            "squeeze_axis": Case(
                lambda x: relay.squeeze(x, axis=-1), lambda x: x[..., 0], uniform(1, 3, 1)
            ),
            "expand_dims": Case(
                lambda x: relay.expand_dims(x, 1, 2), lambda x: x[:, None, None], UNIT
            ),
            "transpose": Case(relay.transpose, np.transpose, X),
            "transpose_axes": Case(
                lambda x: relay.transpose(x, (0, 2, 3, -3)), lambda x: x.transpose(0, 2, 3, 1), X
            ),
            "layout_nhwc": Case(
                lambda x: relay.layout_transform(x, "NCHW", "NHWC"),
                lambda x: x.transpose(0, 2, 3, 1),
                X,
            ),
            "layout_blocked": Case(
                lambda x: relay.layout_transform(
                    relay.layout_transform(x, "NCHW", "NCHW2c"), "NCHW2c", "NHWC"
                ),
                lambda x: x.transpose(0, 2, 3, 1),
                X,
            ),
            "layout_block": Case(
                lambda x: relay.layout_transform(x, "NCHW", "NCHW3c"),
                lambda x: x.reshape(2, 2, 3, 5, 4).transpose(0, 1, 3, 4, 2),
                X,
            ),
            "reverse": Case(lambda x: relay.reverse(x, 1), lambda x: x[:, ::-1], X),
            "concatenate": Case(
                lambda a, b: relay.concatenate([a, b], axis=-1),
                lambda a, b: np.concatenate([a, b], -1),
                UNIT, uniform(2, 3),
            ),
            "stack": Case(
                lambda a, b: relay.stack([a, b], axis=1), lambda a, b: np.stack([a, b], 1),
                UNIT, uniform(2, 6),
            ),
            "split": Case(
                lambda x: relay.split(x, 3, axis=1), lambda x: np.split(x, 3, 1), X
            ),
            "split_at": Case(
                lambda x: relay.split(x, (1, 4), axis=1), lambda x: np.split(x, (1, 4), 1), X
            ),
            "split_one": Case(lambda x: relay.split(x, 1), lambda x: [x], X),
            "concatenate_split": Case(
                lambda x: relay.concatenate(relay.split(x, 2, axis=1), axis=0),
                lambda x: np.concatenate(np.split(x, 2, 1), 0),
                X,
            ),
            "broadcast_to": Case(
                lambda x: relay.broadcast_to(x, (3, 2, 6)),
                lambda x: np.broadcast_to(x, (3, 2, 6)),
                UNIT,
            ),
            "broadcast_to_like": Case(
                relay.broadcast_to_like, lambda x, y: np.broadcast_to(x, y.shape), uniform(6), UNIT
            ),
            "collapse_sum_like": Case(
                relay.collapse_sum_like, lambda x, y: x.sum(0), UNIT, uniform(6)
            ),
            "collapse_sum_to": Case(
                lambda x: relay.collapse_sum_to(x, (2, 1)), lambda x: x.sum(1, keepdims=True), UNIT
            ),
            "repeat": Case(
                lambda x: relay.repeat(x, 2, axis=1), lambda x: np.repeat(x, 2, 1), UNIT
            ),
            "tile": Case(lambda x: relay.tile(x, (2, 1, 3)), lambda x: np.tile(x, (2, 1, 3)), UNIT),
            "batch_flatten": Case(relay.nn.batch_flatten, lambda x: x.reshape(2, -1), X),
            "meshgrid": Case(
                lambda a, b: relay.meshgrid([a, b]),
                lambda a, b: np.meshgrid(a, b, indexing="ij"),
                uniform(3), uniform(4),
            ),
        }
    )  # fmt: skip


def test_new_tensors() -> None:
    check(
        {
            "zeros": Case(lambda: relay.zeros((2, 3), "int32"), lambda: np.zeros((2, 3), "int32")),
            "ones": Case(lambda: relay.ones((2,), "float32"), lambda: np.ones(2, "float32")),
            "full": Case(
                lambda: relay.full(relay.const(2.5), (2, 2)), lambda: np.full((2, 2), 2.5, "f4")
            ),
            "full_of": Case(
                lambda v: relay.full(v, (2, 2)), lambda v: np.full((2, 2), v), uniform()
            ),
            "full_like": Case(
                lambda x: relay.full_like(x, relay.const(3.0)), lambda x: np.full_like(x, 3), UNIT
            ),
            "arange": Case(
                lambda: relay.arange(relay.const(1.0), relay.const(4.0), relay.const(0.5)),
                lambda: np.arange(1, 4, 0.5, "float32"),
            ),
            "shape_of": Case(relay.shape_of, lambda x: np.array(x.shape, "int32"), X),
            "size": Case(relay.ndarray_size, lambda x: np.array(x.size, "int32"), X),
            "one_hot": Case(
                lambda i: relay.one_hot(i, relay.const(2.0), relay.const(-1.0), 5, -1, "float32"),
                lambda i: np.where(i[:, None] == np.arange(5), 2, -1).astype("float32"),
                np.array([0, 3, 4], "int32"),
            ),
        }
    )


def test_indexing() -> None:
    i = np.array([[0, 2], [5, -1]], "int32")
    check(
        {
            "slice": Case(
                lambda x: relay.strided_slice(x, [0, 1, -2], [2, 100, 5]),
                lambda x: x[0:2, 1:100, -2:5],
                X,
            ),
            "slice_negative": Case(
                lambda x: relay.strided_slice(x, [5], [0], [-2], axes=[1]),
                lambda x: x[:, 5:0:-2],
                X,
            ),
            "slice_reversed": Case(
                lambda x: relay.strided_slice(x, [-1], [-100], [-1], axes=[1]),
                lambda x: x[:, ::-1],
                X,
            ),
            "slice_size": Case(
                lambda x: relay.strided_slice(x, [1, 2], [-1, 3], slice_mode="size"),
                lambda x: x[1:, 2:5],
                X,
            ),
            "slice_like": Case(
                relay.slice_like, lambda x, y: x[:1, :3], UNIT, uniform(1, 3)
            ),
            "take": Case(
                lambda x, i: relay.take(x, i, axis=1),
                lambda x, i: np.take(x, np.clip(i, 0, 5), 1),
                X, i,
            ),
            "take_wrap": Case(
                lambda x, i: relay.take(x, i, axis=1, mode="wrap"),
                lambda x, i: np.take(x, i, 1, mode="wrap"),
                X, i,
            ),
            "take_flat": Case(
                relay.take, lambda x, i: np.take(x.reshape(-1), np.clip(i, 0, 99)), UNIT, i
            ),
            "gather": Case(
                lambda x, i: relay.gather(x, 1, i),
                lambda x, i: np.take_along_axis(x, i, 1),
                UNIT, np.array([[0, 2], [5, 1]], "int32"),
            ),
            "gather_nd": Case(
                relay.gather_nd,
                lambda x, i: x[tuple(i)],
                X, np.array([[0, 1, 1], [5, 2, 0]], "int32"),
            ),
            "scatter_elements": Case(
                lambda x, i, u: relay.scatter_elements(x, i, u, axis=1, reduction="add"),
                lambda x, i, u: reference.scatter_add(x, i, u),
                UNIT, np.array([[0, 0], [5, 1]], "int32"), uniform(2, 2),
            ),
            "scatter_nd": Case(
                relay.scatter_nd,
                lambda x, i, u: reference.scatter_nd(x, i, u),
                UNIT, np.array([[0, 1], [5, 2]], "int32"), uniform(2),
            ),
            "sequence_mask": Case(
                lambda x, n: relay.sequence_mask(x, n, mask_value=-1),
                lambda x, n: np.where(np.arange(4)[:, None] < n, x, -1).astype("float32"),
                uniform(4, 3), np.array([1, 4, 2], "int32"),
            ),
            "reverse_sequence": Case(
                lambda x, n: relay.reverse_sequence(x, n, seq_axis=0, batch_axis=1),
                reference.reverse_sequence,
                uniform(4, 3), np.array([1, 4, 2], "int32"),
            ),
            "triu": Case(lambda x: relay.trilu(x, 1), lambda x: np.triu(x, 1), uniform(4, 5)),
            "tril": Case(
                lambda x: relay.trilu(x, 0, upper=False), lambda x: np.tril(x), uniform(4, 5)
            ),
        }
    )  # fmt: skip


def test_reductions() -> None:
    flags = X > 0
    check(
        {
            "sum": Case(relay.sum, np.sum, X),
            "sum_axes": Case(
                lambda x: relay.sum(x, (1, -1), keepdims=True),
                lambda x: x.sum((1, 3), keepdims=True),
                X,
            ),
            "sum_exclude": Case(
                lambda x: relay.sum(x, 1, exclude=True), lambda x: x.sum((0, 2, 3)), X
            ),
            "mean": Case(lambda x: relay.mean(x, 2), lambda x: x.mean(2), X),
            "max": Case(lambda x: relay.max(x, 2), lambda x: x.max(2), X),
            "min": Case(lambda x: relay.min(x, 2), lambda x: x.min(2), X),
            "prod": Case(lambda x: relay.prod(x, 1), lambda x: x.prod(1), UNIT),
            "all": Case(lambda x: relay.all(x, 1), lambda x: x.all(1), flags),
            "any": Case(lambda x: relay.any(x, 1), lambda x: x.any(1), flags),
            "argmax": Case(lambda x: relay.argmax(x, 1), lambda x: x.argmax(1), X),
            "argmin": Case(
                lambda x: relay.argmin(x, 1, keepdims=True), lambda x: x.argmin(1)[:, None], X
            ),
            "argmax_all": Case(relay.argmax, lambda x: np.array(x.argmax()), X),
            "variance": Case(lambda x: relay.variance(x, 1), lambda x: x.var(1), X),
            "std_unbiased": Case(
                lambda x: relay.std(x, 1, unbiased=True), lambda x: x.std(1, ddof=1), X
            ),
            "logsumexp": Case(
                lambda x: relay.logsumexp(x, 1), lambda x: np.log(np.exp(x).sum(1)), X
            ),
            "cumsum": Case(lambda x: relay.cumsum(x, 1), lambda x: x.cumsum(1), UNIT),
            "cumprod": Case(lambda x: relay.cumprod(x, 1), lambda x: x.cumprod(1), UNIT),
            "cumsum_exclusive": Case(
                lambda x: relay.cumsum(x, 1, exclusive=True), lambda x: x.cumsum(1) - x, UNIT
            ),
            "sort": Case(lambda x: relay.sort(x, 1), lambda x: np.sort(x, 1), UNIT),
            "argsort": Case(
                lambda x: relay.argsort(x, 1, is_ascend=False), lambda x: np.argsort(-x, 1), UNIT
            ),
            "topk": Case(
                lambda x: relay.topk(x, 2),
                lambda x: [np.sort(x)[:, :-3:-1], np.argsort(x)[:, :-3:-1]],
                UNIT,
            ),
        }
    )


def test_padding_and_blocks() -> None:
    widths = ((0, 0), (0, 0), (1, 2), (2, 0))
    check(
        {
            "pad": Case(
                lambda x: relay.nn.pad(x, widths, 1.5),
                lambda x: np.pad(x, widths, constant_values=1.5),
                X,
            ),
            "pad_edge": Case(
                lambda x: relay.nn.pad(x, widths, pad_mode="edge"),
                lambda x: np.pad(x, widths, "edge"),
                X,
            ),
            "pad_reflect": Case(
                lambda x: relay.nn.pad(x, widths, pad_mode="reflect"),
                lambda x: np.pad(x, widths, "reflect"),
                X,
            ),
            "mirror_symmetric": Case(
                lambda x: relay.nn.mirror_pad(x, widths),
                lambda x: np.pad(x, widths, "symmetric"),
                X,
            ),
            "mirror_reflect": Case(
                lambda x: relay.nn.mirror_pad(x, widths, "REFLECT"),
                lambda x: np.pad(x, widths, "reflect"),
                X,
            ),
            "depth_to_space": Case(
                lambda x: relay.nn.depth_to_space(x, 2),
                reference.depth_to_space_dcr,
                uniform(1, 8, 2, 3),
            ),
            "space_to_depth": Case(
                lambda x: relay.nn.space_to_depth(relay.nn.depth_to_space(x, 2), 2),
                lambda x: x,
                uniform(1, 8, 2, 3),
            ),
            "upsampling": Case(
                lambda x: relay.nn.upsampling(x, 2, 3),
                lambda x: x.repeat(2, 2).repeat(3, 3),
                X,
            ),
            "upsampling_nhwc": Case(
                lambda x: relay.nn.upsampling(x, 2, 2, layout="NHWC"),
                lambda x: x.repeat(2, 1).repeat(2, 2),
                X,
            ),
            "upsampling_bilinear": Case(
                lambda x: relay.nn.upsampling(x, 2, 2, method="bilinear", align_corners=True),
                lambda x: reference.bilinear_align_corners(x, 10, 8),
                X,
            ),
            "resize2d": Case(
                lambda x: relay.image.resize2d(
                    x, (10, 8), method="linear", coordinate_transformation_mode="align_corners"
                ),
                lambda x: reference.bilinear_align_corners(x, 10, 8),
                X,
            ),
        }
    )


def test_every_converter_has_a_type_rule() -> None:
    from convoy.relay.ops import OPERATORS

    rules = {name for name, operator in OPERATORS.items() if operator.type_rule}
    assert set(supported_ops()) <= rules
    assert rules - set(supported_ops()) <= {"hardswish", "debug"}


@pytest.mark.parametrize("name", ["nn.conv2d", "add"])
def test_supported_ops_lists(name: str) -> None:
    assert name in supported_ops()
