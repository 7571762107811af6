"""The reference of a squeeze-and-excitation block against PyTorch's operators in float64."""

from __future__ import annotations

import numpy as np
import pytest

from convoy.ir.activation_values import activate
from convoy.ir.squeeze_excite import squeeze_and_excite
from convoy.measure import dtypes, reference
from convoy.measure.problem import make_blueprint

from ..graph.numpy_kernels import run_workload
from ..sm90.squeeze_excite_cases import cases, made, usual

torch = pytest.importorskip("torch")

USUAL = list(usual())


def operands(w):
    rng = np.random.default_rng(0)
    shapes = w.operand_shapes()[:-1]
    scale = {
        "squeeze": (9 * w.h * w.w / w.c) ** 0.5,
        "excite": (3 / w.squeeze_excite.channels) ** 0.5,
    }
    return {name: rng.uniform(-1, 1, shape) * scale.get(name, 1.0) for name, shape, _ in shapes}


def rounded(w, values):
    return dtypes.decode(dtypes.encode(values, w.dtype), w.dtype)


def by_torch(w, given):
    x = torch.from_numpy(given["x"])
    found = rounded(w, x.mean((1, 2)).numpy())
    for part, name in zip(squeeze_and_excite(w), ("squeeze", "excite"), strict=True):
        bias = given.get(f"{name}_bias")
        bias = None if bias is None else torch.from_numpy(bias)
        sums = torch.nn.functional.linear(
            torch.from_numpy(found), torch.from_numpy(given[name]), bias
        )
        e = part.epilogue
        found = activate(e.activation, sums.numpy(), e.alpha, e.clip_min, e.clip_max)
        found = rounded(w, found)
    y = (x * torch.from_numpy(found)[:, None, None]).numpy() + given.get("residual", 0.0)
    e = w.epilogue
    return activate(e.activation, y, e.alpha, e.clip_min, e.clip_max)


@pytest.mark.parametrize("w", [*USUAL, *cases(40, 7)], ids=lambda w: w.key)
def test_whole_and_samples(w):
    given = operands(w)
    want = by_torch(w, given)
    functions = {name: reference.Operand(array) for name, array in given.items()}
    (sample,) = reference.sample(w, functions, np.random.default_rng(5))
    assert sample.name == "y"
    index = sample.starts[:, None] + np.arange(sample.run)
    assert 0 in index and want.size - 1 in index
    # A sum of another order may be rounded to the next float between the products.
    close = {"atol": 0.1 if w.dtype == "bfloat16" else 0.02}
    np.testing.assert_allclose(sample.values, want.reshape(-1)[index], **close)
    (got,) = reference.full(w, given)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, **close)
    assert np.mean(np.abs(got - want)) < 1e-3, "y is not rounded itself"


def test_samples_are_of_the_whole():
    w = USUAL[2]
    given = operands(w)
    functions = {name: reference.Operand(array) for name, array in given.items()}
    (whole,) = reference.full(w, given)
    (sample,) = reference.sample(w, functions, np.random.default_rng(1))
    index = sample.starts[:, None] + np.arange(sample.run)
    np.testing.assert_allclose(sample.values, whole.reshape(-1)[index], atol=1e-12)


def test_means_and_the_results_of_both_products_are_rounded():
    w = made(1, 2, 8, 8, "none", "clip")
    given = {name: np.zeros_like(value) for name, value in operands(w).items()}
    given["x"][:] = 1 + 2**-12  # its mean rounds to 1
    given["squeeze"][:] = np.eye(8)
    given["squeeze_bias"][:] = 2**-12  # 1 + 2^-12 rounds to 1
    given["excite"][:] = np.eye(8) / 2
    given["excite_bias"][:] = 2**-13  # 1/2 + 2^-13 rounds to 1/2
    (y,) = reference.full(w, given)
    np.testing.assert_array_equal(y, np.full((1, 2, 2, 8), (1 + 2**-12) / 2))
    halves = [value.astype("float16") for value in given.values()]
    (got,) = run_workload(w, halves)
    np.testing.assert_array_equal(got, np.full((1, 2, 2, 8), 0.5, "float16"))


@pytest.mark.parametrize("w", USUAL, ids=lambda w: w.key)
def test_random_inputs_tell_gates_apart(w):
    """Means of random images are near 0; gates are not, however large the images are."""
    blueprint = make_blueprint(w, np.random.default_rng(1))
    (sample,) = blueprint.expected
    assert 0.1 < np.sqrt(np.mean(sample.values**2)) < 3
    blocks = {name: dtypes.decode(block, w.dtype) for name, block in blueprint.blocks.items()}
    functions = {name: reference.Operand(block) for name, block in blocks.items()}
    gates = reference.squeeze_excite.with_gates(w, functions)["gates"](np.arange(w.n * w.c))
    assert np.std(gates) > 0.05
