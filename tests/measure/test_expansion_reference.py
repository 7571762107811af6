"""The reference of an expansion against PyTorch's convolutions in float64."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from convoy.ir.activation_values import activate
from convoy.measure import dtypes, reference
from convoy.measure.problem import make_blueprint

from ..graph.numpy_kernels import run_workload
from ..sm90.expansion_cases import cases, usual

torch = pytest.importorskip("torch")
F = torch.nn.functional


def operands(w):
    rng = np.random.default_rng(0)
    return {name: rng.uniform(-1, 1, shape) for name, shape, _ in w.operand_shapes()[:-1]}


def convolved(x, filters, bias, epilogue, padding=(0, 0, 0, 0), **options):
    top, left, bottom, right = padding
    x = F.pad(torch.from_numpy(x).permute(0, 3, 1, 2), (left, right, top, bottom))
    bias = None if bias is None else torch.from_numpy(bias)
    y = F.conv2d(x, torch.from_numpy(filters).permute(0, 3, 1, 2), bias, **options)
    y = y.permute(0, 2, 3, 1).numpy()
    e = epilogue
    return activate(e.activation, y, e.alpha, e.clip_min, e.clip_max)


def by_torch(w, given):
    expand = given["expand"][:, None, None]
    wide = convolved(given["x"], expand, given.get("expand_bias"), w.expansion.epilogue)
    wide = dtypes.decode(dtypes.encode(wide, w.dtype), w.dtype)
    options = {"stride": w.stride, "dilation": w.dilation, "groups": w.groups}
    return convolved(wide, given["w"], given.get("bias"), w.epilogue, w.padding, **options)


@pytest.mark.parametrize("w", [*usual(), *cases(30, 7)], ids=lambda w: w.key)
def test_whole_and_samples(w):
    given = operands(w)
    wanted = by_torch(w, given)
    functions = {name: reference.Operand(array) for name, array in given.items()}
    (sample,) = reference.sample(w, functions, np.random.default_rng(5))
    index = sample.starts[:, None] + np.arange(sample.run)
    assert 0 in index and wanted.size - 1 in index
    # A sum of another order may be rounded to the next float between the convolutions.
    close = {"atol": 0.1 if w.dtype == "bfloat16" else 0.02}
    np.testing.assert_allclose(sample.values, wanted.reshape(-1)[index], **close)
    assert np.mean(np.abs(sample.values - wanted.reshape(-1)[index])) < 1e-4
    if w.n * w.p * w.q * w.k < 60_000:
        (whole,) = reference.full(w, given)
        np.testing.assert_allclose(whole, wanted, **close)


def test_the_wide_tensor_is_rounded_and_has_zeros_around_it():
    """Zeros, whatever bias the 1x1 convolution adds."""
    w = dataclasses.replace(next(usual()), h=2, w=2, stride=(1, 1))
    given = operands(w)
    given = {name: np.zeros_like(value) for name, value in given.items()}
    given["expand_bias"][:] = 1 + 2**-12
    given["w"][:] = 1.0
    (whole,) = reference.full(w, given)
    np.testing.assert_array_equal(whole, np.full((1, 2, 2, 96), 4.0))
    halves = [value.astype("float16") for value in given.values()]
    np.testing.assert_array_equal(run_workload(w, halves)[0], whole)


@pytest.mark.parametrize("w", list(usual()), ids=lambda w: w.key)
def test_random_inputs_keep_results_near_one(w):
    (sample,) = make_blueprint(w, np.random.default_rng(1)).expected
    assert 0.3 < np.sqrt(np.mean(sample.values**2)) < 3
