"""The reference of a stem against PyTorch's convolution and max-pool in float64."""

from __future__ import annotations

import numpy as np
import pytest

from convoy.ir.activation_values import activate
from convoy.measure import reference

from ..sm90.stem_cases import cases

torch = pytest.importorskip("torch")
F = torch.nn.functional


def operands(w):
    rng = np.random.default_rng(0)
    return {name: rng.uniform(-1, 1, shape) for name, shape, _ in w.operand_shapes()[:-1]}


def by_torch(w, given):
    x = torch.from_numpy(given["x"])
    x = x.permute(0, 3, 1, 2) if w.stem.channels_last else x
    filters = torch.from_numpy(given["w"])[..., : w.stem.channels].permute(0, 3, 1, 2)
    bias = torch.from_numpy(given["bias"]) if "bias" in given else None
    y = F.conv2d(padded(x, w.padding), filters, bias, w.stride, dilation=w.dilation)
    e = w.epilogue
    y = torch.from_numpy(activate(e.activation, y.numpy(), e.alpha, e.clip_min, e.clip_max))
    if w.stem.pools:
        y = F.max_pool2d(padded(y, w.stem.padding, -torch.inf), w.stem.window, w.stem.stride)
    return y.permute(0, 2, 3, 1).numpy()


def padded(x, padding, value=0.0):
    top, left, bottom, right = padding
    return F.pad(x, (left, right, top, bottom), value=value)


@pytest.mark.parametrize("w", list(cases(40, 7)), ids=lambda w: w.key)
def test_whole_and_samples(w):
    given = operands(w)
    wanted = by_torch(w, given)
    functions = {name: reference.Operand(array) for name, array in given.items()}
    (sample,) = reference.sample(w, functions, np.random.default_rng(5))
    index = sample.starts[:, None] + np.arange(sample.run)
    assert 0 in index and wanted.size - 1 in index
    np.testing.assert_allclose(sample.values, wanted.reshape(-1)[index], atol=1e-11)
    if w.n * w.p * w.q * w.k < 60_000:
        (whole,) = reference.full(w, given)
        np.testing.assert_allclose(whole, wanted, atol=1e-11)


def test_nan_is_kept():
    w = next(w for w in cases(40, 7) if w.stem.pools and w.epilogue.activation == "relu")
    given = operands(w)
    given["x"][:] = np.nan
    (whole,) = reference.full(w, given)
    np.testing.assert_array_equal(whole, by_torch(w, given))
