"""Reductions, cumulative operators and sorting against numpy."""

from __future__ import annotations

import numpy as np

from convoy import relay

from .cases import UNIT, Case, X, check


def test_reductions() -> None:
    flags = X > 0
    check(
        {
            "sum": Case(relay.sum, np.sum, X),
            "sum_axes": Case(
                lambda x: relay.sum(x, (1, -1), keepdims=True),
                lambda x: x.sum((1, 3), keepdims=True),
                X,
            ),
            "sum_exclude": Case(
                lambda x: relay.sum(x, 1, exclude=True), lambda x: x.sum((0, 2, 3)), X
            ),
            "mean": Case(lambda x: relay.mean(x, 2), lambda x: x.mean(2), X),
            "max": Case(lambda x: relay.max(x, 2), lambda x: x.max(2), X),
            "min": Case(lambda x: relay.min(x, 2), lambda x: x.min(2), X),
            "prod": Case(lambda x: relay.prod(x, 1), lambda x: x.prod(1), UNIT),
            "all": Case(lambda x: relay.all(x, 1), lambda x: x.all(1), flags),
            "any": Case(lambda x: relay.any(x, 1), lambda x: x.any(1), flags),
            "argmax": Case(lambda x: relay.argmax(x, 1), lambda x: x.argmax(1), X),
            "argmin": Case(
                lambda x: relay.argmin(x, 1, keepdims=True), lambda x: x.argmin(1)[:, None], X
            ),
            "argmax_all": Case(relay.argmax, lambda x: np.array(x.argmax()), X),
            "variance": Case(lambda x: relay.variance(x, 1), lambda x: x.var(1), X),
            "std_unbiased": Case(
                lambda x: relay.std(x, 1, unbiased=True), lambda x: x.std(1, ddof=1), X
            ),
            "logsumexp": Case(
                lambda x: relay.logsumexp(x, 1), lambda x: np.log(np.exp(x).sum(1)), X
            ),
            "cumsum": Case(lambda x: relay.cumsum(x, 1), lambda x: x.cumsum(1), UNIT),
            "cumprod": Case(lambda x: relay.cumprod(x, 1), lambda x: x.cumprod(1), UNIT),
            "cumsum_exclusive": Case(
                lambda x: relay.cumsum(x, 1, exclusive=True), lambda x: x.cumsum(1) - x, UNIT
            ),
            "sort": Case(lambda x: relay.sort(x, 1), lambda x: np.sort(x, 1), UNIT),
            "argsort": Case(
                lambda x: relay.argsort(x, 1, is_ascend=False), lambda x: np.argsort(-x, 1), UNIT
            ),
            "topk": Case(
                lambda x: relay.topk(x, 2),
                lambda x: [np.sort(x)[:, :-3:-1], np.argsort(x)[:, :-3:-1]],
                UNIT,
            ),
        }
    )
