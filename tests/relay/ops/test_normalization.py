"""Normalizations, softmax, dropout and losses against numpy."""

from __future__ import annotations

import numpy as np

from convoy import relay

from .. import reference
from .cases import UNIT, Case, X, check, uniform


def test_normalizations() -> None:
    g, b, m, v = uniform(6), uniform(6), uniform(6), uniform(6, low=0.5, high=2)
    wide = uniform(2, 5, 4, 6)
    check(
        {
            "batch_norm": Case(
                lambda *a: relay.nn.batch_norm(*a, epsilon=1e-3)[0],
                lambda x, g, b, m, v: reference.affine(
                    (x - reference.along(m, x, 1)) / np.sqrt(reference.along(v, x, 1) + 1e-3),
                    g, b, 1,
                ),
                X, g, b, m, v,
            ),
            "batch_norm_nhwc": Case(
                lambda *a: relay.nn.batch_norm(*a, axis=3, scale=False)[0],
                lambda x, g, b, m, v: (x - m) / np.sqrt(v + 1e-5) + b,
                wide, g, b, m, v,
            ),
            "layer_norm": Case(
                relay.nn.layer_norm,
                lambda x, g, b: reference.affine(reference.normalized(x, (3,)), g, b, 3),
                wide, g, b,
            ),
            "layer_norm_of_doubles": Case(
                relay.nn.layer_norm,
                lambda x, g, b: reference.affine(reference.normalized(x, (3,)), g, b, 3),
                *(a.astype("float64") for a in (wide, g, b)),
            ),
            "layer_norm_without_beta": Case(
                lambda *a: relay.nn.layer_norm(*a, center=False),
                lambda x, g, b: reference.affine(reference.normalized(x, (3,)), g, 0 * b, 3),
                wide, g, b,
            ),
            "layer_norm_without_gamma": Case(
                lambda *a: relay.nn.layer_norm(*a, axis=1, scale=False),
                lambda x, g, b: reference.affine(reference.normalized(x, (1,)), g**0, b, 1),
                X, g, b,
            ),
            "instance_norm": Case(
                relay.nn.instance_norm,
                lambda x, g, b: reference.affine(reference.normalized(x, (2, 3)), g, b, 1),
                X, g, b,
            ),
            "group_norm": Case(
                lambda x, g, b: relay.nn.group_norm(x, g, b, num_groups=3),
                lambda x, g, b: reference.affine(
                    reference.normalized(x.reshape(2, 3, 2, 5, 4), (2, 3, 4)).reshape(x.shape),
                    g, b, 1,
                ),
                X, g, b,
            ),
            "bias_add": Case(
                relay.nn.bias_add, lambda x, b: x + reference.along(b, x, 1), X, b
            ),
            "bias_add_last": Case(
                lambda x, b: relay.nn.bias_add(x, b, axis=-1), lambda x, b: x + b, wide, b
            ),
            "softmax": Case(
                lambda x: relay.nn.softmax(x, axis=1), lambda x: reference.softmax(x, 1), X
            ),
            "fast_softmax": Case(relay.nn.fast_softmax, lambda x: reference.softmax(x, -1), UNIT),
            "log_softmax": Case(
                relay.nn.log_softmax, lambda x: np.log(reference.softmax(x, -1)), UNIT
            ),
            "lrn": Case(
                lambda x: relay.nn.lrn(x, size=3, alpha=0.1),
                lambda x: reference.lrn(x, 3, 2, 0.1, 0.75),
                X,
            ),
            "l2": Case(
                lambda x: relay.nn.l2_normalize(x, 1e-4, [1]),
                lambda x: x / np.sqrt(np.maximum((x * x).sum(1, keepdims=True), 1e-4)),
                X,
            ),
            "dropout": Case(relay.nn.dropout, lambda x: x, X),
            "cross_entropy": Case(
                relay.nn.cross_entropy,
                lambda x, t: np.float32(-(t * np.log(x)).sum() / x.shape[0]),
                uniform(4, 3, low=0.1, high=1), uniform(4, 3),
            ),
            "cross_entropy_with_logits": Case(
                relay.nn.cross_entropy_with_logits,
                lambda x, t: np.float32(-(t * x).sum() / x.shape[0]),
                uniform(4, 3), uniform(4, 3),
            ),
        }
    )  # fmt: skip
