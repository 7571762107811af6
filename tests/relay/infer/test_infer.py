"""Type inference: shapes that come out, types that are found, and what is refused."""

from __future__ import annotations

import pytest

from convoy import relay
from convoy.errors import RelayTypeError

from ..running import HEAD


def result(body: str, **params: str) -> str:
    """The type of an expression of parameters; "" is a parameter without a type."""
    items = [f"%{n}: {t}" if t else f"%{n}" for n, t in params.items()]
    mod = relay.parse(f"{HEAD}def @main({', '.join(items)}) {{ {body} }}")
    return str(mod["main"].checked_type.ret_type)


def param_types(body: str, **params: str) -> list[str]:
    items = [f"%{n}: {t}" if t else f"%{n}" for n, t in params.items()]
    mod = relay.parse(f"{HEAD}def @main({', '.join(items)}) {{ {body} }}")
    return [str(p.checked_type) for p in mod["main"].params]


IMAGE = "Tensor[(1, 4, 9, 8), float32]"


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("nn.conv2d(%x, %w, channels=6, kernel_size=[3, 3])", "Tensor[(1, 6, 7, 6), float32]"),
        (
            "nn.conv2d(%x, %w, channels=6, kernel_size=[3, 3], strides=[2, 2], padding=[1])",
            "Tensor[(1, 6, 5, 4), float32]",
        ),
        (
            "nn.conv2d(%x, %w, channels=6, kernel_size=[3, 3], padding=[1, 0, 0, 2])",
            "Tensor[(1, 6, 8, 8), float32]",
        ),
        (
            'nn.conv2d(%x, %w, channels=6, kernel_size=[3, 3], dilation=[2, 2], out_dtype="int32")',
            "Tensor[(1, 6, 5, 4), int32]",
        ),
        ("nn.max_pool2d(%x, pool_size=[2, 2], strides=[2, 2])", "Tensor[(1, 4, 4, 4), float32]"),
        (
            "nn.max_pool2d(%x, pool_size=[2, 2], strides=[2, 2], ceil_mode=True)",
            "Tensor[(1, 4, 5, 4), float32]",
        ),
        ("nn.global_avg_pool2d(%x)", "Tensor[(1, 4, 1, 1), float32]"),
        ("nn.batch_flatten(%x)", "Tensor[(1, 288), float32]"),
        ("nn.dense(nn.batch_flatten(%x), %w, units=10)", "Tensor[(1, 10), float32]"),
        ("mean(%x, axis=[2, 3])", "Tensor[(1, 4), float32]"),
        ("sum(%x, axis=[1], exclude=True, keepdims=True)", "Tensor[(1, 4, 1, 1), float32]"),
        ("argmax(%x)", "int32"),
        ("less(%x, 0f)", "Tensor[(1, 4, 9, 8), bool]"),
        ("transpose(%x, axes=None)", "Tensor[(8, 9, 4, 1), float32]"),
        ('layout_transform(%x, src_layout="NCHW", dst_layout="NCHW2c")',
         "Tensor[(1, 2, 9, 8, 2), float32]"),
        ("nn.batch_norm(%x, %a, %b, %c, %d).0".replace(").0", ")"),
         "(Tensor[(1, 4, 9, 8), float32], Tensor[(4), float32], Tensor[(4), float32])"),
    ],
)  # fmt: skip
def test_shapes(body: str, want: str) -> None:
    names = {n: "" for n in "abcdw" if f"%{n}" in body}
    assert result(body, x=IMAGE, **names) == want


def test_operators_tell_the_types_of_their_weights() -> None:
    found = param_types(
        "%0 = nn.conv2d(%x, %w, channels=8, kernel_size=[3, 1], groups=2, "
        'data_layout="NHWC", kernel_layout="HWIO"); nn.bias_add(%0, %b, axis=3)',
        x="Tensor[(1, 9, 8, 4), float16]", w="", b="",
    )  # fmt: skip
    assert found[1:] == ["Tensor[(3, 1, 2, 8), float16]", "Tensor[(8), float16]"]


def test_types_flow_backwards_over_the_order_of_calls() -> None:
    """%b is used before the operator that tells its type."""
    found = param_types(
        "%0 = exp(%b); %1 = nn.bias_add(%x, %b); (%0, %1)", x="Tensor[(2, 5), float32]", b=""
    )
    assert found[1] == "Tensor[(5), float32]"


def test_unknown_sizes_stay_unknown() -> None:
    assert result("nn.relu(%x)", x="Tensor[(?, 4), float32]") == "Tensor[(?, 4), float32]"
    assert (
        result("add(%x, %y)", x="Tensor[(?, 1), float32]", y="Tensor[(3, ?), float32]")
        == "Tensor[(3, ?), float32]"
    )
    assert result("reshape(%x, newshape=[-1, 2])", x="Tensor[(?, 4), float32]") == (
        "Tensor[(?, 2), float32]"
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("nn.conv2d(%x, %x, kernel_size=[3, 3])", "kernel_size=[3, 3]"),
        ("nn.conv2d(%x, %x, channels=2)", "2 along O"),
        ("nn.conv2d(%x, %w, channels=6, kernel_size=[3, 3], groups=3)", "groups=3"),
        ("nn.conv2d(%x, %w, channels=6, kernel_size=[11, 3])", "window of 11"),
        ("nn.conv2d(%x, %w, channels=6, kernel_size=[3, 3], strides=[0, 1])", "strides=[0, 1]"),
        ("nn.conv2d(%x, %w, channels=6, kernel_size=[3, 3], padding=[1, 1, 1])", "1, 2 or 4"),
        ("nn.conv2d(%x)", "1 arguments"),
        ("nn.max_pool2d(%x, pool_size=[2])", "2 values"),
        ("concatenate((%x, cast(%x, dtype=\"int8\")), axis=1)", "one dtype"),
        ("concatenate((%x, nn.batch_flatten(%x)), axis=1)", "along axis 1"),
        ("concatenate(%x, axis=1)", "a tuple of tensors"),
        ("split(%x, indices_or_sections=3, axis=1)", "4 elements in 3"),
        ("reshape(%x, newshape=[7, -1])", "do not divide"),
        ("reshape(%x, newshape=[7])", "do not fill"),
        ("transpose(%x, axes=[0, 0, 1, 2])", "each axis once"),
        ("squeeze(%x, axis=[1])", "size 1"),
        ("add(%x, nn.batch_flatten(%x))", "broadcast"),
        ("sum(%x, axis=[7])", "axis 7"),
        ("nn.softmax(%x, axis=4)", "axis 4"),
        ("(%x, %x).2", "field 2"),
        ("%x.0", "a tuple"),
        ("%x(%x)", "a function"),
        ("nn.pad(%x, 0f, pad_width=[[1, 1]])", "4 pairs"),
        ("strided_slice(%x, begin=[0], end=[1], strides=[0], axes=[1])", "stride"),
        ("nn.dense(nn.batch_flatten(%x), nn.batch_flatten(%x), units=3)", "(3, 288)"),
    ],
)  # fmt: skip
def test_refused(body: str, words: str) -> None:
    names = {"w": ""} if "%w" in body else {}
    with pytest.raises(RelayTypeError) as caught:
        result(body, x=IMAGE, **names)
    assert words in str(caught.value)
    assert "from_string:2:" in str(caught.value)


def test_types_that_nothing_tells() -> None:
    with pytest.raises(RelayTypeError, match="type of %y in @main cannot be inferred"):
        result("exp(%y)", y="")


def test_sizes_that_are_variables_of_tvm() -> None:
    from convoy.relay.tvm018 import te

    n = te.var("n")
    x, y = relay.var("x", shape=(n, 3)), relay.var("y", shape=(n, 3))
    cases = {
        relay.nn.pad(x, ((1, 1), (0, 0))): (n + 2, 3),
        relay.concatenate([x, y], axis=0): (n + n, 3),
        relay.concatenate([x, y], axis=1): (n, 6),
        relay.tile(x, (2, 2)): (n * 2, 6),
        relay.reshape(x, (-1,)): (n * 3,),
        relay.nn.upsampling(relay.var("i", shape=(1, 3, n, 4)), 2, 2): (1, 3, n * 2, 8),
        relay.nn.max_pool2d(relay.var("i", shape=(1, 3, n, n)), (2, 2), (2, 2)): (
            1, 3, (n - 2) // 2 + 1, (n - 2) // 2 + 1,
        ),
        relay.image.resize1d(relay.var("i", shape=(1, 3, 8)), (n,)): (1, 3, n),
    }  # fmt: skip
    for expr, shape in cases.items():
        mod = relay.transform.InferType()(relay.IRModule.from_expr(expr))
        found = mod["main"].body.checked_type
        assert found == relay.TensorType(shape), f"{found} for {shape}"
        assert found != relay.TensorType((*shape[:-1], 99))
