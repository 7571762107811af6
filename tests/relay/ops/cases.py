"""Operators against numpy: cases of one family are compiled as one module.

Compiling costs more than computing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from convoy import relay

from ..running import run_stock

RNG = np.random.default_rng(0)


def uniform(*shape: int, low: float = -2, high: float = 2, dtype: str = "float32") -> np.ndarray:
    """Draw random numbers."""
    return RNG.uniform(low, high, shape).astype(dtype)


class Case:
    """An expression of variables, and the numpy function that it must equal."""

    def __init__(
        self, build: Callable[..., Any], want: Callable[..., Any], *arrays: np.ndarray
    ) -> None:
        self.build, self.want, self.arrays = build, want, arrays


def check(cases: dict[str, Case], tolerance: float = 2e-5) -> None:
    """Compile all cases as one module, through text; run it and compare each result."""
    params, results, arrays = [], [], []
    for name, case in cases.items():
        mine = [
            relay.var(f"{name}_{i}", shape=a.shape, dtype=str(a.dtype))
            for i, a in enumerate(case.arrays)
        ]
        built = case.build(*mine)
        results.append(built.astuple() if isinstance(built, relay.TupleWrapper) else built)
        params += mine
        arrays += case.arrays
    mod = relay.IRModule.from_expr(relay.Function(params, relay.Tuple(results)))
    mod = relay.parse(relay.transform.InferType()(mod).astext())  # through the text as well
    got = iter(run_stock(mod, *arrays))
    for name, case in cases.items():
        want = case.want(*case.arrays)
        for part in want if isinstance(want, (list, tuple)) else [want]:
            value = next(got)
            np.testing.assert_allclose(value, part, tolerance, tolerance, err_msg=name)
            assert value.shape == np.shape(part), name


X = uniform(2, 6, 5, 4)
POSITIVE = uniform(2, 6, 5, 4, low=0.1, high=3)
UNIT = uniform(2, 6, low=-0.9, high=0.9)
INTS = RNG.integers(-9, 10, (3, 4)).astype("int32")
