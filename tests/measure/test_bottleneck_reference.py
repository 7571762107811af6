"""The reference of a bottleneck against PyTorch's convolutions in float64."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from convoy.ir.bottleneck import Bottleneck, parts
from convoy.ir.epilogue import Epilogue
from convoy.measure import dtypes, reference
from convoy.measure.problem import make_blueprint

from ..graph.numpy_kernels import run_workload
from ..sm90.bottleneck_cases import cases, usual

torch = pytest.importorskip("torch")
F = torch.nn.functional

USUAL = list(usual())


def operands(w):
    rng = np.random.default_rng(0)
    shapes = w.operand_shapes()[: -w.num_outputs]
    scale = {"w": 9 / (w.taps * w.c), "expand": 3 / w.k, "reduce": 3 / w.bottleneck.expand}
    return {
        name: rng.uniform(-1, 1, shape) * scale.get(name, 1.0) ** 0.5 for name, shape, _ in shapes
    }


def convolved(part, x, filters, bias, residual=0.0):
    """A part of a bottleneck, rounded."""
    from convoy.ir.activation_values import activate

    top, left, bottom, right = part.padding
    x = F.pad(torch.from_numpy(x).permute(0, 3, 1, 2), (left, right, top, bottom))
    bias = None if bias is None else torch.from_numpy(bias)
    filters = torch.from_numpy(filters.reshape(part.k, part.r, part.s, part.c))
    y = F.conv2d(x, filters.permute(0, 3, 1, 2), bias, dilation=part.dilation)
    e = part.epilogue
    y = activate(
        e.activation, y.permute(0, 2, 3, 1).numpy() + residual, e.alpha, e.clip_min, e.clip_max
    )
    return dtypes.decode(dtypes.encode(y, part.dtype), part.dtype)


def by_torch(w, given):
    first, second, *third = parts(w)
    t = convolved(first, given["x"], given["w"], given.get("bias"))
    residual = given.get("residual", 0.0)
    y = convolved(second, t, given["expand"], given.get("expand_bias"), residual)
    return [y, *(convolved(p, y, given["reduce"], given.get("reduce_bias")) for p in third)]


@pytest.mark.parametrize("w", [*USUAL, *cases(30, 7)], ids=lambda w: w.key)
def test_whole_and_samples(w):
    given = operands(w)
    wanted = by_torch(w, given)
    functions = {name: reference.Operand(array) for name, array in given.items()}
    samples = reference.sample(w, functions, np.random.default_rng(5))
    assert [sample.name for sample in samples] == ["y", "z"][: w.num_outputs]
    # A sum of another order may be rounded to the next float between the convolutions.
    close = {"atol": 0.1 if w.dtype == "bfloat16" else 0.02}
    for sample, want in zip(samples, wanted, strict=True):
        index = sample.starts[:, None] + np.arange(sample.run)
        assert 0 in index and want.size - 1 in index
        np.testing.assert_allclose(sample.values, want.reshape(-1)[index], **close)
        error = np.mean(np.abs(sample.values - want.reshape(-1)[index]))
        assert error < (2e-2 if w.dtype == "bfloat16" else 2e-3), "it is not rounded itself"
    if w.pixels < 3000:
        for got, want in zip(reference.full(w, given), wanted, strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, **close)


def test_samples_are_of_the_whole():
    w = USUAL[2]
    given = operands(w)
    functions = {name: reference.Operand(array) for name, array in given.items()}
    whole = reference.full(w, given)
    for sample, exact in zip(
        reference.sample(w, functions, np.random.default_rng(1)), whole, strict=True
    ):
        index = sample.starts[:, None] + np.arange(sample.run)
        # All of float64 but where sums in another order are rounded to another number.
        wrong = np.abs(sample.values - exact.reshape(-1)[index]) > 1e-9
        assert np.mean(wrong) < 0.05
        np.testing.assert_allclose(sample.values, exact.reshape(-1)[index], atol=0.02)


def test_every_result_is_rounded_before_the_next_convolution():
    bias = Epilogue(bias=True)
    w = dataclasses.replace(
        USUAL[0], h=2, w=2, epilogue=bias, bottleneck=Bottleneck(256, bias, 64, Epilogue())
    )
    given = {name: np.zeros_like(value) for name, value in operands(w).items()}
    given["bias"][:] = 1 + 2**-12  # rounds to 1
    given["expand"][:] = 1 / 64
    given["expand_bias"][:] = 2**-12  # 1 + 2^-12 rounds to 1
    given["reduce"][:] = 1 / 256
    y, z = reference.full(w, given)
    np.testing.assert_array_equal(y, np.full((1, 2, 2, 256), 1 + 2**-12))
    np.testing.assert_array_equal(z, np.full((1, 2, 2, 64), 1.0))
    halves = [value.astype("float16") for value in given.values()]
    for got, want in zip(run_workload(w, halves), (y, z), strict=True):
        np.testing.assert_array_equal(got, want.astype("float16"))


@pytest.mark.parametrize("w", USUAL, ids=lambda w: w.key)
def test_random_inputs_keep_results_near_one(w):
    samples = make_blueprint(w, np.random.default_rng(1)).expected
    assert len(samples) == w.num_outputs
    for sample in samples:
        assert 0.3 < np.sqrt(np.mean(sample.values**2)) < 3
