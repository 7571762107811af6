"""Quantized operators against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from convoy import relay
from convoy.errors import ConvoyError, UnsupportedOp
from convoy.relay.ops.qnn_arithmetic import fixed_point
from convoy.relay.qnn import op as qnn

from ..reference import conv, pool, sigmoid, softmax
from ..running import HEAD, run_stock

RNG = np.random.default_rng(3)


def scale(value: Any) -> relay.Expr:
    return relay.const(np.asarray(value, "float32"))


def zero(value: Any) -> relay.Expr:
    return relay.const(np.asarray(value, "int32"))


def int8(*shape: int, dtype: str = "int8") -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


def run(build: Any, *arrays: np.ndarray) -> np.ndarray:
    """The value of an expression of variables, through the text and JSON as well."""
    params = [relay.var(f"x{i}", shape=a.shape, dtype=str(a.dtype)) for i, a in enumerate(arrays)]
    mod = relay.IRModule.from_expr(relay.Function(params, build(*params)))
    mod = relay.transform.InferType()(mod)
    assert relay.structural_equal(mod, relay.load_json(relay.save_json(mod)))
    (got,) = run_stock(relay.parse(mod.astext()), *arrays)
    assert got.dtype == mod["main"].checked_type.ret_type.dtype
    return got


def rescale(value: np.ndarray, factor: Any, rounding: str = "UPWARD") -> np.ndarray:
    """Real arithmetic in float64, which is exact enough for the sizes of these tests."""
    product = value * np.asarray(factor, "float64")
    if rounding == "TONEAREST":
        return (np.sign(product) * np.floor(np.abs(product) + 0.5)).astype("int64")
    return np.floor(product + 0.5).astype("int64")


def saturate(value: np.ndarray, dtype: str = "int8") -> np.ndarray:
    info = np.iinfo(dtype)
    return np.clip(value, info.min, info.max).astype(dtype)


def test_quantize_and_dequantize() -> None:
    x = RNG.uniform(-4, 4, (2, 3, 5)).astype("float32")
    got = run(lambda x: qnn.quantize(x, scale(0.03), zero(5), out_dtype="uint8"), x)
    np.testing.assert_array_equal(got, saturate(np.round(x / np.float32(0.03)) + 5, "uint8"))
    steps = np.array([0.1, 0.2, 0.4], "float32")
    got = run(lambda x: qnn.quantize(x, scale(steps), zero([0, 1, 2]), axis=1), x)
    want = np.round(x / steps[:, None]) + np.array([[0], [1], [2]])
    np.testing.assert_array_equal(got, saturate(want))
    q = int8(2, 3, 5)
    got = run(lambda q: qnn.dequantize(q, scale(steps), zero([0, 1, 2]), axis=-2), q)
    want = steps[:, None] * (q.astype("int32") - np.array([[0], [1], [2]]))
    np.testing.assert_allclose(got, want, 1e-6)


@pytest.mark.parametrize("rounding", ["None", "UPWARD", "TONEAREST"])
@pytest.mark.parametrize("factor", [0.0037, 0.5, 1.0, 3.7])
def test_requantize(factor: float, rounding: str) -> None:
    x = RNG.integers(-30_000, 30_000, (4, 6)).astype("int32")
    step = np.float32(factor)
    got = run(
        lambda x: qnn.requantize(
            x, scale(step), zero(7), scale(1.0), zero(-3), rounding=rounding, out_dtype="int8"
        ),
        x,
    )
    want = saturate(rescale(x - 7, step, rounding) - 3)
    np.testing.assert_array_equal(got, want)


def test_requantize_each_channel() -> None:
    x = RNG.integers(-30_000, 30_000, (2, 3, 4)).astype("int32")
    steps = np.array([0.01, 0.002, 5.0], "float32")
    got = run(
        lambda x: qnn.requantize(
            x, scale(steps), zero(0), scale(0.5), zero(1), axis=1, out_dtype="uint8"
        ),
        x,
    )
    want = rescale(x, steps.astype("float64")[:, None] / 0.5) + 1
    np.testing.assert_array_equal(got, saturate(want, "uint8"))


@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST"])
@pytest.mark.parametrize("steps", [[1e-20], [2.0**-33], [2.0**-32], [1e-30, 0.25, 1e-12]])
def test_factors_that_take_all_to_zero(steps: list[float], rounding: str) -> None:
    """Shifts by more bits than there are, which no processor computes."""
    ends = [np.iinfo("int32").min, -1, 0, 1, np.iinfo("int32").max]
    x = np.tile(np.array(ends, "int32"), (len(steps), 1))
    step = scale(np.array(steps, "float32").squeeze())
    got = run(
        lambda x: qnn.requantize(
            x, step, zero(0), scale(1.0), zero(0), axis=0, rounding=rounding, out_dtype="int32"
        ),
        x,
    )
    np.testing.assert_array_equal(got, rescale(x, np.array(steps)[:, None], rounding))


@pytest.mark.parametrize("factor", [0.0, 1e-9, 0.3, 0.5, 0.99999999999, 1.0, 12345.678])
def test_fractions(factor: float) -> None:
    fraction, exponent = fixed_point(factor)
    assert -(2**31) < fraction < 2**31
    assert abs(fraction * 2.0 ** (exponent - 31) - factor) <= factor * 2**-30


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_convolution_and_product(dtype: str) -> None:
    x, w = int8(2, 6, 8, 8, dtype=dtype), int8(4, 3, 3, 3)
    got = run(
        lambda x, w: qnn.conv2d(
            x, w, zero(11), zero(-2), scale(0.1), scale(0.2), (3, 3), 4, (2, 1), (1, 1), groups=2
        ),
        x, w,
    )  # fmt: skip
    wide = x.astype("int64") - 11, w.astype("int64") + 2
    want = conv(*wide, (2, 1), [(1, 1), (1, 1)], (1, 1), 2)
    np.testing.assert_array_equal(got, want)
    a, b = int8(5, 16, dtype=dtype), int8(7, 16)
    got = run(lambda a, b: qnn.dense(a, b, zero(3), zero(4), scale(0.1), scale([0.2] * 7), 7), a, b)
    np.testing.assert_array_equal(got, (a.astype("int64") - 3) @ (b.astype("int64") - 4).T)


@pytest.mark.parametrize("name", ["add", "subtract", "mul"])
def test_binary(name: str) -> None:
    a, b = int8(3, 4), int8(4)
    numbers = (scale(0.25), zero(3), scale(0.5), zero(-1), scale(0.75), zero(10))
    got = run(lambda a, b: getattr(qnn, name)(a, b, *numbers), a, b)
    lhs, rhs = a.astype("int64") - 3, b.astype("int64") + 1
    if name == "mul":
        want = rescale(lhs * rhs, 0.25 * 0.5 / 0.75) + 10
    else:
        left, right = rescale(lhs, 0.25 / 0.75), rescale(rhs, 0.5 / 0.75)
        want = (left + right if name == "add" else left - right) + 10
    np.testing.assert_array_equal(got, saturate(want))


def test_concatenation() -> None:
    a, b = int8(2, 3), int8(2, 5)
    got = run(
        lambda a, b: qnn.concatenate(
            [a, b], [scale(0.5), scale(0.25)], [zero(1), zero(0)], scale(0.5), zero(0), axis=1
        ),
        a, b,
    )  # fmt: skip
    parts = [saturate(a.astype("int64") - 1), saturate(rescale(b.astype("int64"), 0.5))]
    np.testing.assert_array_equal(got, np.concatenate(parts, axis=1))


UNARY = {
    "qnn.sigmoid": ("", sigmoid),
    "qnn.tanh": ("", np.tanh),
    "qnn.softmax": (", axis=1", lambda x: softmax(x, 1)),
    "qnn.leaky_relu": (", alpha=0.5f", lambda x: np.where(x > 0, x, 0.5 * x)),
    "qnn.hardswish": ("", lambda x: x * np.clip(x + 3, 0, 6) / 6),
}


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_value(name: str) -> None:
    attrs, function = UNARY[name]
    text = f"""{HEAD}def @main(%x: Tensor[(2, 9), int8]) {{
      {name}(%x, 0.05f, 4, 0.01f, -20{attrs})
    }}"""
    x = int8(2, 9)
    (got,) = run_stock(relay.parse(text), x)
    real = function(np.float32(0.05) * (x.astype("float32") - 4))
    want = saturate(np.round(real / np.float32(0.01)) - 20)
    assert np.abs(got.astype(int) - want).max() <= 1  # halves of real numbers


def test_pool() -> None:
    text = f"""{HEAD}def @main(%x: Tensor[(1, 2, 6, 6), uint8]) {{
      qnn.avg_pool2d(%x, 0.1f, 3, 0.1f, 3, pool_size=[2, 2], strides=[2, 2])
    }}"""
    x = int8(1, 2, 6, 6, dtype="uint8")
    (got,) = run_stock(relay.parse(text), x)
    want = pool(x, "avg", (2, 2), (2, 2), [(0, 0), (0, 0)], (1, 1))
    assert np.abs(got.astype(int) - want).max() < 1


def test_a_quantized_network() -> None:
    """Its scales and zero points come with the parameters."""
    text = f"""{HEAD}
def @main(%x: Tensor[(1, 3, 8, 8), float32], %w: Tensor[(4, 3, 3, 3), int8], %s: float32,
          %b: Tensor[(4), int32]) {{
  %0 = qnn.quantize(%x, 0.02f, 0, out_dtype="int8");
  %1 = qnn.conv2d(%0, %w, 0, 0, 0.02f, %s, padding=[1, 1, 1, 1], channels=4, kernel_size=[3, 3],
                  out_dtype="int32");
  %2 = nn.bias_add(%1, %b);
  %3 = qnn.requantize(%2, 0.0002f, 0, 0.05f, 2, axis=1, out_dtype="int8");
  qnn.dequantize(clip(%3, a_min=2f, a_max=127f), 0.05f, 2, out_dtype="float32")
}}"""
    mod = relay.parse(text)
    x = RNG.uniform(-2, 2, (1, 3, 8, 8)).astype("float32")
    params = {"w": int8(4, 3, 3, 3), "s": np.float32(0.01), "b": np.arange(4, dtype="int32") * 500}
    (got,) = run_stock(mod, x, params=params)
    q = saturate(np.round(x / np.float32(0.02)))
    y = conv(q.astype("int64"), params["w"].astype("int64"), (1, 1), [(1, 1)] * 2, (1, 1))
    y = y + params["b"].reshape(1, -1, 1, 1)
    step = float(np.float32(0.0002)) / float(np.float32(0.05))
    want = np.float32(0.05) * (np.clip(rescale(y, step) + 2, 2, 127) - 2)
    np.testing.assert_allclose(got, want, 1e-6)
    with pytest.raises(UnsupportedOp, match=r"scale or zero point that is computed.*Bind it"):
        relay.to_relax(relay.parse(text.replace("%2, 0.0002f", "%2, %s")))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('qnn.requantize(%q, 0.1f, 0, 0f, 0, out_dtype="int8")', "ratio"),
        ('qnn.requantize(%q, 1e30f, 0, 1f, 0, out_dtype="int8")', "ratio"),
        ('qnn.requantize(%q, 0.1f, 0, meta[relay.Constant][0], 0, out_dtype="int8")', "3 scales"),
        ('qnn.quantize(%x, 0.1f, 0, out_dtype="float32")', "quantized float32"),
        ('qnn.requantize(%q, 0.1f, 0, 0.2f, 0, rounding="DOWN", out_dtype="int8")', "DOWN"),
        ("qnn.dense(%q, %q, meta[relay.Constant][0], 0, 0.1f, 0.1f, units=None)", "3 scales"),
    ],
)
def test_numbers_that_make_no_sense(body: str, words: str) -> None:
    params = "%x: Tensor[(3, 3), float32], %q: Tensor[(3, 3), int8]"
    table = {"relay.Constant": [relay.const(np.ones(3, "float32"))]}
    mod = relay.parse(f"{HEAD}def @main({params}) {{ {body} }}", "text", None, table)
    with pytest.raises(ConvoyError, match=rf"text:2:.*{words}"):
        relay.to_relax(mod)


FUNCTIONS = {
    "abs": np.abs,
    "exp": np.exp,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": sigmoid,
    "tanh": np.tanh,
}


def test_tables_are_exact() -> None:
    """All 256 values, under the keywords of TVM 0.18; halves round away from zero."""
    q = np.arange(256, dtype="uint8").view("int8")
    numbers = {
        "scale": scale(0.05),
        "zero_point": zero(-100),
        "output_scale": scale(0.125),
        "output_zero_point": zero(-7),
    }
    for name, function in FUNCTIONS.items():
        got = run(lambda x, name=name: getattr(relay.qnn, name)(x=x, **numbers), q)
        with np.errstate(all="ignore"):
            real = function(((q.astype("int32") + 100) * np.float32(0.05)).astype("float32"))
        defined = np.isfinite(real)
        steps = real / np.float32(0.125)
        want = saturate(np.nan_to_num(np.trunc(steps + np.copysign(0.5, steps)) - 7))
        np.testing.assert_array_equal(got[defined], want[defined], err_msg=name)


def test_simulated_quantization_chooses_its_dtype_at_run_time() -> None:
    x = RNG.uniform(-300, 300, (2, 3)).astype("float32")
    s, z = np.array([0.5, 1, 2], "float32"), np.array([3, 0, -2], "int32")
    params = [
        relay.var("x", shape=x.shape),
        relay.var("code", shape=(), dtype="int32"),
        relay.var("s", shape=(relay.Any(),)),
        relay.var("z", shape=(relay.Any(),), dtype="int32"),
    ]
    data, code, steps, point = params
    there = qnn.simulated_quantize(data, steps, point, axis=1, out_dtype=code)
    back = qnn.simulated_dequantize(there, steps, point, axis=1, in_dtype=code)
    function = relay.create_executor("vm").evaluate(
        relay.Function(params, relay.Tuple([there, back]))
    )
    for number, dtype in ((1, "int8"), (2, "uint8"), (0, "")):
        for scales, points in ((s, z), (s[:1], z[:1])):
            got = [t.numpy() for t in function(x, np.int32(number), scales, points)]
            want = x if not dtype else saturate(np.round(x / scales) + points, dtype)
            np.testing.assert_array_equal(got[0], want.astype("float32"))
            real = x if not dtype else (got[0] - points) * scales
            np.testing.assert_allclose(got[1], real, 1e-6)


def test_zero_points_of_channels_and_of_a_run() -> None:
    x, w = int8(1, 2, 4, 4), int8(3, 2, 3, 3)
    points = np.array([5, 0, -3], "int32")
    numbers = (scale(0.1), scale([0.1, 0.2, 0.3]), (3, 3), 3)
    got = run(lambda x, w: qnn.conv2d(x, w, zero(4), zero(points), *numbers), x, w)
    wide = w.astype("int64") - points.reshape(3, 1, 1, 1)
    want = conv(x.astype("int64") - 4, wide, (1, 1), [(0, 0)] * 2, (1, 1))
    np.testing.assert_array_equal(got, want)
    a, b = int8(2, 3, 4), int8(2, 5, 4)
    point = np.array(7, "int32")
    got = run(
        lambda a, b, p: qnn.batch_matmul(a, b, p, zero(-2), scale(0.1), scale(0.2)), a, b, point
    )
    want = (a.astype("int64") - 7) @ (b.astype("int64") + 2).transpose(0, 2, 1)
    np.testing.assert_array_equal(got, want)
    real = RNG.uniform(-3, 3, (2, 3)).astype("float32")
    step = np.array([0.1, 0.2, 0.3], "float32")
    got = run(lambda x, s: qnn.quantize(x, s, zero(1), axis=1), real, step)
    steps = real / step
    np.testing.assert_array_equal(
        got, saturate(np.trunc(steps + np.copysign(np.float32(0.5), steps)) + 1)
    )


@pytest.mark.parametrize("compute", ["float32", "float64", "int64"])
def test_rounding_of_a_context(compute: str) -> None:
    x = np.arange(-24, 25, dtype="int32")
    for rounding in ("UPWARD", "TONEAREST"):
        with qnn.requantize_config(rounding=rounding, compute_dtype=compute):
            got = run(lambda x: qnn.requantize(x, scale(1.0), zero(0), scale(16.0), zero(1)), x)
        np.testing.assert_array_equal(got, saturate(rescale(x, 1 / 16, rounding) + 1))
    assert qnn.current_requantize_config().rounding == "UPWARD"
