"""Fourier transforms, correlation, three-dimensional samples against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from convoy import relay

from .test_sparse import evaluate

RNG = np.random.default_rng(9)


def uniform(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype("float32")


@pytest.mark.parametrize("inverse", [False, True])
def test_dft(inverse: bool) -> None:
    real, imaginary = uniform(2, 3, 7), uniform(2, 3, 7)
    got = evaluate(lambda r, i: relay.op.transform.dft(r, i, inverse), real, imaginary)
    want = (np.fft.ifft if inverse else np.fft.fft)(real + 1j * imaginary)
    np.testing.assert_allclose(got[0], want.real, 1e-4, 1e-4)
    np.testing.assert_allclose(got[1], want.imag, 1e-4, 1e-4)


@pytest.mark.parametrize("onesided", [False, True])
def test_stft(onesided: bool) -> None:
    data, window = uniform(2, 40), uniform(8)
    (got,) = evaluate(lambda d, w: relay.stft(d, 8, 3, 8, w, True, onesided), data, window)
    starts = range(0, 40 - 8 + 1, 3)
    want = np.stack([np.fft.fft(data[:, s : s + 8] * window) for s in starts], 2) / np.sqrt(8)
    want = want[:, :5] if onesided else want
    np.testing.assert_allclose(got, np.stack([want.real, want.imag], -1), 1e-4, 1e-4)


@pytest.mark.parametrize("multiply", [True, False])
def test_correlation(multiply: bool) -> None:
    a, b = uniform(1, 3, 6, 7), uniform(1, 3, 6, 7)
    (got,) = evaluate(
        lambda a, b: relay.nn.correlation(a, b, 1, 2, 1, 1, 2, multiply, "NCHW"), a, b
    )
    wide = np.pad(b, [(0, 0), (0, 0), (2, 2), (2, 2)])
    want = np.zeros((1, 25, 6, 7))
    for place, (dy, dx) in enumerate(np.ndindex(5, 5)):
        moved = wide[:, :, dy : dy + 6, dx : dx + 7]
        want[:, place] = ((a * moved) if multiply else np.abs(a - moved)).mean(1)
    np.testing.assert_allclose(got, want, 1e-4, 1e-5)


def test_samples_of_a_volume_and_a_shifted_buffer() -> None:
    data, buffer, new = uniform(1, 2, 3, 4, 5), uniform(2, 6), uniform(2, 2)
    axes = [np.linspace(-1, 1, n) for n in (3, 4, 5)]
    z, y, x = np.meshgrid(*axes, indexing="ij")
    grid = np.stack([x, y, z])[None, :, ::-1].astype("float32")
    sampled, shifted = evaluate(
        lambda d, g, b, n: relay.Tuple(
            [
                relay.image.grid_sample(d, g, layout="NCDHW"),
                relay.nn.fifo_buffer(n, b, 1),
            ]
        ),
        data, grid, buffer, new,
    )  # fmt: skip
    np.testing.assert_allclose(sampled, data[:, :, ::-1], 1e-4, 1e-5)
    np.testing.assert_array_equal(shifted, np.concatenate([buffer, new], 1)[:, 2:])


def test_depthwise_weight_of_several_outputs() -> None:
    data, weight = uniform(1, 3, 5, 5), uniform(3, 2, 3, 3)
    (got,) = evaluate(
        lambda d, w: relay.nn.conv2d(d, w, groups=3, channels=6, kernel_size=(3, 3)), data, weight
    )
    want = np.zeros((1, 6, 3, 3))
    for c, m, y, x in np.ndindex(3, 2, 3, 3):
        want[0, 2 * c + m, y, x] = (data[0, c, y : y + 3, x : x + 3] * weight[c, m]).sum()
    np.testing.assert_allclose(got, want, 1e-4, 1e-5)
