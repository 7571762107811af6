"""Several networks as one: results, inputs by name, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, te

import convoy
from convoy import relay
from convoy.errors import InvalidOption
from convoy.relay.convert import to_relax

SMALL = """#[version = "0.0.5"]
def @main(%data: Tensor[(1, 4, 6, 6), float32], %w: Tensor[(8, 4, 3, 3), float32]) {
  nn.relu(nn.conv2d(%data, %w, padding=[1, 1, 1, 1], channels=8, kernel_size=[3, 3]))
}
"""
TWO_RESULTS = """#[version = "0.0.5"]
def @main(%data: Tensor[(1, 4, 6, 6), float32], %mask: Tensor[(1, 4, 6, 6), float32]) {
  %0 = multiply(%data, %mask);
  (nn.relu(%0), (tanh(%0), %data))
}
"""


def array(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype("float32")


X, Y, MASK, W = (array(i, *s) for i, s in enumerate([(1, 4, 6, 6)] * 3 + [(8, 4, 3, 3)]))


def run(mod, *inputs: np.ndarray) -> list[np.ndarray]:
    return convoy.build(mod, "llvm").session()(*inputs)


def same(got: list[np.ndarray], *want: list[np.ndarray]) -> bool:
    flat = [array for arrays in want for array in arrays]
    return len(got) == len(flat) and all(
        np.allclose(g, w, atol=1e-5) for g, w in zip(got, flat, strict=True)
    )


@pytest.fixture(scope="module")
def small():
    return to_relax(relay.parse(SMALL), {"w": W})


@pytest.fixture(scope="module")
def two():
    return to_relax(relay.parse(TWO_RESULTS), {})


def test_different_inputs(small, two) -> None:
    mod = convoy.parallel(small, two, names=("conv", "pair"))
    session = convoy.build(mod, "llvm").session()
    assert [name for name, _, _ in session.input_info] == ["conv_data", "pair_data", "pair_mask"]
    assert same(session(X, Y, MASK), run(small, X), run(two, Y, MASK))


def test_shared_inputs(small, two) -> None:
    mod = convoy.parallel(small, two, shared=True)
    session = convoy.build(mod, "llvm").session()
    assert [name for name, _, _ in session.input_info] == ["data", "m1_mask"]
    assert same(session(X, MASK), run(small, X), run(two, X, MASK))
    by_name = convoy.parallel(small, two, shared=["data"])
    assert same(run(by_name, X, MASK), run(small, X), run(two, X, MASK))


def test_relay_modules_with_parameters_of_their_own() -> None:
    """One network twice, with different weights; in one of them they stay an input."""
    module = relay.parse(SMALL)
    mod = convoy.parallel(module, module, params=[{"w": W}, None], shared=["data"])
    session = convoy.build(mod, "llvm").session()
    assert [name for name, _, _ in session.input_info] == ["data", "m1_w"]
    want = [run(to_relax(module, {"w": w}), X) for w in (W, -W)]
    assert same(session(X, -W), *want)


def test_kernels_of_importers_keep_apart() -> None:
    """Both modules bring a TIR function of the same name that does something else."""

    def module(factor: float) -> tvm.IRModule:
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType((4,), "float32"))
        with builder.function("main", [x]):
            scaled = builder.emit_te(
                lambda t: te.compute(t.shape, lambda i: t[i] * tvm.tirx.const(factor, "float32")),
                x,
                primfunc_name_hint="scale",
            )
            builder.emit_func_output(scaled)
        return builder.get()

    mod = convoy.parallel(module(2.0), module(3.0), shared=True)
    x = np.arange(4, dtype="float32")
    assert same(run(mod, x), [x * 2], [x * 3])


def test_of_one(small) -> None:
    assert same(run(convoy.parallel(small), X), run(small, X))


def test_refusals(small, two) -> None:
    with pytest.raises(InvalidOption, match="no module"):
        convoy.parallel()
    with pytest.raises(InvalidOption, match="names"):
        convoy.parallel(small, two, names=("a", "a"))
    with pytest.raises(InvalidOption, match="params for 1 modules"):
        convoy.parallel(small, two, params=[{}])
    with pytest.raises(InvalidOption, match="shared input 'image'"):
        convoy.parallel(small, two, shared="image")
    other = to_relax(relay.parse(SMALL.replace("(1, 4, 6, 6)", "(2, 4, 6, 6)")), {"w": W})
    with pytest.raises(InvalidOption, match="shared input 'data' of type"):
        convoy.parallel(small, other, shared=True)
