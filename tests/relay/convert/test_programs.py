"""Whole programs, each about something that the format or the language allows: read, printed,
saved, built and run, and compared with numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm

from convoy import relay

from ..running import HEAD, flatten, relative_error, run_graph, run_stock

RNG = np.random.default_rng(5)
X2 = "%x: Tensor[(2), float32]"
X4 = "%x: Tensor[(1, 4, 8, 8), float32]"
BN = ", ".join(f"%{n}: Tensor[(4), float32]" for n in "gbmv")


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype("float32")


def batch_norm(x: Any, g: Any, b: Any, m: Any, v: Any) -> list[Any]:
    g, b, mean, var = (a[:, None, None] for a in (g, b, m, v))
    return [(x - mean) / np.sqrt(var + 1e-5) * g + b, m, v]


Case = tuple[str, str, list[Any], Callable[..., Any]]
PROGRAMS: dict[str, Case] = {
    "the parameter itself": (X2, "%x", [floats(2)], lambda x: x),
    "one value three times": (X2, "(%x, %x, (%x,))", [floats(2)], lambda x: [x, x, x]),
    "constants alone": ("", "add(1f, 2f)", [], lambda: np.float32(3)),
    "an integer": ("", "5", [], lambda: np.int32(5)),
    "infinity": ("", "-inff", [], lambda: np.float32(-np.inf)),
    "a wide integer": ("", "5000000000", [], lambda: np.int64(5 * 10**9)),
    "discarded values": (X2, "exp(%x); log(abs(%x)); %x", [floats(2)], lambda x: x),
    "the unit": (X2, "let %t = (); %x", [floats(2)], lambda x: x),
    "nothing in it": (
        "%x: Tensor[(0, 3), float32]", "exp(%x)", [np.zeros((0, 3), "float32")], np.exp,
    ),
    "a tuple of tuples": (
        X2, "let %t = (%x, (exp(%x), %x)); let %u = %t.1; (%u.0, %t.0)", [floats(2)],
        lambda x: [np.exp(x), x],
    ),
    "a tuple as parameter": (
        "%t: (Tensor[(2), float32], (Tensor[(2), float32],))", "%0 = %t.1; subtract(%t.0, %0.0)",
        [floats(2), floats(2)], np.subtract,
    ),
    "functions as arguments": (
        X2,
        """let %f = fn (%g: fn (Tensor[(2), float32]) -> Tensor[(2), float32],
                        %y: Tensor[(2), float32]) { %g(%g(%y)) };
           %f(fn (%z: Tensor[(2), float32]) { exp(%z) }, %x)""",
        [floats(2)], lambda x: np.exp(np.exp(x)),
    ),
    "functions as results": (
        X2,
        """let %f = fn (%a: Tensor[(2), float32]) {
             fn (%b: Tensor[(2), float32]) { subtract(%a, %b) }
           };
           let %g = %f(%x);
           let %h = %f(exp(%x));
           %g(%h(%x))""",
        [floats(2)], lambda x: x - (np.exp(x) - x),
    ),
    "attributes of a function": (
        X2, '%0 = fn (%p: Tensor[(2), float32], k="v", relay.reshape_only=1) { %p }; %0(%x)',
        [floats(2)], lambda x: x,
    ),
    "a device of a parameter": (
        "%x {virtual_device=meta[VirtualDevice][0]}: Tensor[(2), float32]", "%x", [floats(2)],
        lambda x: x,
    ),
    "moving statistics as results": (
        f"{X4}, {BN}", "%0 = nn.batch_norm(%x, %g, %b, %m, %v); (%0.0, %0.1, %0.2)",
        [floats(1, 4, 8, 8), floats(4), floats(4), floats(4), np.abs(floats(4))], batch_norm,
    ),
    "norm without scale and center": (
        "%x: Tensor[(2, 4), float32], " + BN,
        """%0 = nn.batch_norm(%x, %g, %b, %m, %v, axis=-1, epsilon=0.001f, center=False,
                              scale=False); %0.0""",
        [floats(2, 4), floats(4), floats(4), floats(4), np.abs(floats(4))],
        lambda x, g, b, m, v: (x - m) / np.sqrt(v + 1e-3),
    ),
    "types of weights inferred": (
        "%x: Tensor[(3, 4), float32], %w, %b", "nn.bias_add(nn.dense(%x, %w, units=5), %b)",
        [floats(3, 4), floats(5, 4), floats(5)], lambda x, w, b: x @ w.T + b,
    ),
    "slices": (
        X4,
        """(strided_slice(%x, begin=[0, 1], end=[1, 3], strides=None, axes=None),
            strided_slice(%x, begin=[0, -1], end=[1, -4], strides=[1, -1], axes=[0, 1]),
            strided_slice(%x, begin=[0, 1, 2, 3], end=[1, 2, -1, 3], strides=[1],
                          slice_mode="size", axes=None))""",
        [floats(1, 4, 8, 8)], lambda x: [x[0:1, 1:3], x[0:1, -1:-4:-1], x[0:1, 1:3, 2:, 3:6]],
    ),
    "reshapes": (
        "%x: Tensor[(2, 3, 4, 5), float32]",
        """(reshape(%x, newshape=[0, -1]), reshape(%x, newshape=[-3, -2]),
            reshape(%x, newshape=[-4, 1, 2, -2]), reshape(%x, newshape=[0, -4, -1, 3, -3]))""",
        [floats(2, 3, 4, 5)],
        lambda x: [x.reshape(2, 60), x.reshape(6, 4, 5), x.reshape(1, 2, 3, 4, 5),
                   x.reshape(2, 1, 3, 20)],
    ),
    "splits": (
        "%x: Tensor[(2, 12), float32]",
        """%0 = split(%x, indices_or_sections=[3i64, 9i64], axis=1);
           %1 = split(%x, indices_or_sections=3, axis=-1);
           (%0.0, %0.2, %1.1)""",
        [floats(2, 12)], lambda x: [x[:, :3], x[:, 9:], x[:, 4:8]],
    ),
}  # fmt: skip


def check(mod: relay.IRModule, inputs: list[Any], reference: Callable[..., Any]) -> None:
    assert relay.structural_equal(mod, relay.parse(mod.astext()))
    assert relay.structural_equal(mod, relay.load_json(relay.save_json(mod)))
    want = reference(*inputs)
    wanted = want if isinstance(want, list) else [want]
    got = run_graph(mod, dict(enumerate(inputs)))  # type: ignore[arg-type]
    assert len(got) == len(wanted)
    for value, expected in zip(got, wanted, strict=True):
        expected = np.asarray(expected)
        if np.isinf(expected).any():
            np.testing.assert_array_equal(value, expected)
        else:
            assert relative_error(value, expected) < 1e-5


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    params, body, inputs, reference = PROGRAMS[name]
    check(relay.parse(f"{HEAD}def @main({params}) {{ {body} }}"), inputs, reference)


def test_partitioned_functions_are_inlined() -> None:
    text = f"""{HEAD}
def @part_0(%a: Tensor[(1, 4, 8, 8), float32], %w: Tensor[(8, 4, 1, 1), float32], Inline=1,
            Compiler="cutlass", global_symbol="part_0", Primitive=1)
            -> Tensor[(1, 8, 8, 8), float32] {{
  %0 = fn (%p: Tensor[(1, 4, 8, 8), float32], %q: Tensor[(8, 4, 1, 1), float32],
           PartitionedFromPattern="nn.conv2d_nn.relu_", Composite="cutlass.conv2d_relu")
           -> Tensor[(1, 8, 8, 8), float32] {{
    nn.relu(nn.conv2d(%p, %q, padding=[0, 0, 0, 0]))
  }};
  %0(%a, %w)
}}
def @main({X4}, %w: Tensor[(8, 4, 1, 1), float32]) {{ @part_0(%x, %w) }}
"""
    check(
        relay.parse(text),
        [floats(1, 4, 8, 8), floats(8, 4, 1, 1)],
        lambda x, w: np.maximum(np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0]), 0),
    )


DTYPES = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize("shape", [(), (2, 3), (0, 3)])
@pytest.mark.parametrize("dtype", [*DTYPES, "float16", "float32", "float64", "bool", "bfloat16"])
def test_constants_of_every_dtype(dtype: str, shape: tuple[int, ...]) -> None:
    """In the text, in the metadata section, in JSON and in the built module."""
    numpy_dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    value = (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(numpy_dtype)
    x = relay.var("x", shape=shape, dtype=dtype)
    mod = relay.IRModule.from_expr(relay.Function([x], relay.Tuple([x, relay.const(value, dtype)])))
    check(relay.transform.InferType()(mod), [(1 - value).astype(numpy_dtype)], lambda x: [x, value])


# ---- on the virtual machine

TWO = "%x: Tensor[(2), float32], %y: Tensor[(2), float32]"
BRANCHES: dict[str, tuple[str, str, Callable[..., Any]]] = {
    "a closure called in a branch": (
        TWO,
        """let %f = fn (%z: Tensor[(2), float32]) { add(%z, %y) };
           if (%c) { %f(%x) } else { if (%c) { %x } else { %f(%f(%x)) } }""",
        lambda c, x, y: x + y if c else x + 2 * y,
    ),
    "two closures of one function": (
        TWO,
        """let %m = fn (%a: Tensor[(2), float32]) {
             fn (%b: Tensor[(2), float32]) { subtract(%a, %b) }
           };
           let %g = %m(%y);
           let %h = %m(%x);
           if (%c) { %g(%h(%y)) } else { %h(%g(%x)) }""",
        lambda c, x, y: y - (x - y) if c else x - (y - x),
    ),
    "a choice of tuples": (
        "%t: (Tensor[(2), float32], Tensor[(2), float32])",
        "%0 = if (%c) { %t } else { (%t.1, %t.0) }; subtract(%0.0, %0.1)",
        lambda c, t: t[0] - t[1] if c else t[1] - t[0],
    ),
    "a let of a choice": (
        X2,
        """let %s = sum(%x);
           let %r = if (greater(%s, 0f)) { let %q = negative(%x); %q } else { %x };
           if (%c) { (%r, %s) } else { (%x, %s) }""",
        lambda c, x: [(-x if x.sum() > 0 else x) if c else x, x.sum()],
    ),
}


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("name", BRANCHES)
def test_branches(name: str, flag: bool) -> None:
    params, body, reference = BRANCHES[name]
    mod = relay.parse(f"{HEAD}def @main(%c: bool, {params}) {{ {body} }}")
    assert relay.structural_equal(mod, relay.parse(mod.astext()))
    tuple_ = "%t" in params
    inputs = [(floats(2), floats(2))] if tuple_ else [floats(2) for _ in range(params.count("%"))]
    machine = relay.vm.VirtualMachine(relay.vm.compile(mod, "llvm"), tvm.cpu())
    result = machine.run(np.array(flag), *inputs)
    want = reference(flag, *inputs)
    got = flatten(result)
    for value, expected in zip(got, want if len(got) > 1 else [want], strict=True):
        np.testing.assert_allclose(value, expected, 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("body", "reference"),
    [
        ("reshape(%x, newshape=[0, -1])", lambda x: x.reshape(len(x), -1)),
        ("reshape(%x, newshape=[-1, 3])", lambda x: x.reshape(-1, 3)),
        ("reshape(%x, newshape=[-3, -2])", lambda x: x.reshape(-1, 4, 4)),
        ("shape_of(%x)", lambda x: np.array(x.shape, "int32")),
        ("broadcast_to_like(1f, %x)", np.ones_like),
        ("reshape_like(%x, negative(%x))", lambda x: x),
        ("nn.upsampling(%x, scale_h=2f64, scale_w=2f64)",
         lambda x: x.repeat(2, axis=2).repeat(2, axis=3)),
        ("nn.batch_flatten(nn.global_avg_pool2d(%x))", lambda x: x.mean((2, 3))),
        ("add(%x, %x)", lambda x: x + x),
    ],
)  # fmt: skip
def test_unknown_batch(body: str, reference: Callable[..., Any]) -> None:
    mod = relay.parse(f"{HEAD}def @main(%x: Tensor[(?, 3, 4, 4), float32]) {{ {body} }}")
    for batch in (1, 5):
        x = floats(batch, 3, 4, 4)
        (got,) = run_stock(mod, x)
        assert relative_error(got, reference(x)) < 1e-5
