"""Quantized weights from their product with a scale."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy.normalize.integer_weights import as_integers


@given(st.data())
def test_products_of_integers_and_scales_are_found(data: st.DataObject) -> None:
    """The float32 products come back, whatever integers and zero points there are; per channel or
    not."""
    k, size = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 100))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    largest = data.draw(st.integers(1, 128))
    integers = rng.integers(-largest, min(largest, 127), (k, 1, 1, size), endpoint=True)
    integers += rng.integers(-128, 129, (k, 1, 1, 1)) * data.draw(st.booleans())
    scales = np.exp(rng.uniform(-20, 20, k if data.draw(st.booleans()) else 1)).astype("float32")
    weights = integers.astype("float32") * scales.reshape(-1, 1, 1, 1)
    found = as_integers(weights)
    assert found is not None
    assert found[0].dtype == np.int8 and found[0].shape == weights.shape
    scales, shifts = (values.reshape(-1, 1, 1, 1) for values in found[1:])
    again = (found[0] + shifts) * scales
    np.testing.assert_allclose(again, weights, rtol=5e-7, atol=0)


def test_others_are_not_changed() -> None:
    rng = np.random.default_rng(0)
    assert as_integers(rng.standard_normal((4, 3, 3, 8)).astype("float32")) is None
    wide = rng.integers(-255, 256, (4, 3, 3, 8)).astype("float32")
    wide[:, 0, 0, :2] = 255, 254
    assert as_integers(wide) is None
    assert as_integers(wide.astype("int32")) is None
    broken = np.ones((2, 1, 1, 4), "float32")
    broken[1, 0, 0, 1] = np.nan
    assert as_integers(broken) is None


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8"])
def test_integers_stay_as_they_are(dtype: str) -> None:
    weights = np.random.default_rng(0).integers(0, 127, (4, 3, 3, 8)).astype(dtype)
    found = as_integers(weights)
    assert found is not None and np.array_equal(found[0], weights) and (found[1] == 1).all()
    assert not found[2].any()
    shifted = as_integers(weights.astype("int32") + 100)
    assert shifted is not None
    again = shifted[0] + shifted[2].reshape(-1, 1, 1, 1)
    assert np.array_equal(again, weights.astype("int32") + 100)
