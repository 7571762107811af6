"""New tensors against numpy."""

from __future__ import annotations

import numpy as np

from convoy import relay

from .cases import UNIT, Case, X, check, uniform


def test_new_tensors() -> None:
    check(
        {
            "zeros": Case(lambda: relay.zeros((2, 3), "int32"), lambda: np.zeros((2, 3), "int32")),
            "ones": Case(lambda: relay.ones((2,), "float32"), lambda: np.ones(2, "float32")),
            "full": Case(
                lambda: relay.full(relay.const(2.5), (2, 2)), lambda: np.full((2, 2), 2.5, "f4")
            ),
            "full_of": Case(
                lambda v: relay.full(v, (2, 2)), lambda v: np.full((2, 2), v), uniform()
            ),
            "full_like": Case(
                lambda x: relay.full_like(x, relay.const(3.0)), lambda x: np.full_like(x, 3), UNIT
            ),
            "arange": Case(
                lambda: relay.arange(relay.const(1.0), relay.const(4.0), relay.const(0.5)),
                lambda: np.arange(1, 4, 0.5, "float32"),
            ),
            "shape_of": Case(relay.shape_of, lambda x: np.array(x.shape, "int32"), X),
            "size": Case(relay.ndarray_size, lambda x: np.array(x.size, "int32"), X),
            "one_hot": Case(
                lambda i: relay.one_hot(i, relay.const(2.0), relay.const(-1.0), 5, -1, "float32"),
                lambda i: np.where(i[:, None] == np.arange(5), 2, -1).astype("float32"),
                np.array([0, 3, 4], "int32"),
            ),
        }
    )
