"""Operators that rearrange elements, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from convoy import relay
from convoy.relay.ops.reshape import reshaped
from convoy.relay.types import Any

from .cases import UNIT, Case, X, check, uniform


def test_shapes() -> None:
    check(
        {
            "reshape": Case(
                lambda x: relay.reshape(x, (0, -1, 2)), lambda x: x.reshape(2, -1, 2), X
            ),
            "reshape_copy": Case(
                lambda x: relay.reshape(x, (-3, -2)), lambda x: x.reshape(12, 5, 4), X
            ),
            "reshape_split": Case(
                lambda x: relay.reshape(x, (0, -4, 2, -1, -2)),
                lambda x: x.reshape(2, 2, 3, 5, 4),
                X,
            ),
            "reverse_reshape": Case(
                lambda x: relay.reverse_reshape(x, (-1, 0)), lambda x: x.reshape(60, 4), X
            ),
            "reshape_like": Case(relay.reshape_like, lambda x, y: x.reshape(y.shape), X,
                                 uniform(12, 20)),
            "squeeze": Case(relay.squeeze, lambda x: x[0, :, 0], uniform(1, 3, 1)),
            "squeeze_axis": Case(
                lambda x: relay.squeeze(x, axis=-1), lambda x: x[..., 0], uniform(1, 3, 1)
            ),
            "expand_dims": Case(
                lambda x: relay.expand_dims(x, 1, 2), lambda x: x[:, None, None], UNIT
            ),
            "transpose": Case(relay.transpose, np.transpose, X),
            "transpose_axes": Case(
                lambda x: relay.transpose(x, (0, 2, 3, -3)), lambda x: x.transpose(0, 2, 3, 1), X
            ),
            "layout_nhwc": Case(
                lambda x: relay.layout_transform(x, "NCHW", "NHWC"),
                lambda x: x.transpose(0, 2, 3, 1),
                X,
            ),
            "layout_blocked": Case(
                lambda x: relay.layout_transform(
                    relay.layout_transform(x, "NCHW", "NCHW2c"), "NCHW2c", "NHWC"
                ),
                lambda x: x.transpose(0, 2, 3, 1),
                X,
            ),
            "layout_block": Case(
                lambda x: relay.layout_transform(x, "NCHW", "NCHW3c"),
                lambda x: x.reshape(2, 2, 3, 5, 4).transpose(0, 1, 3, 4, 2),
                X,
            ),
            "reverse": Case(lambda x: relay.reverse(x, 1), lambda x: x[:, ::-1], X),
            "concatenate": Case(
                lambda a, b: relay.concatenate([a, b], axis=-1),
                lambda a, b: np.concatenate([a, b], -1),
                UNIT, uniform(2, 3),
            ),
            "stack": Case(
                lambda a, b: relay.stack([a, b], axis=1), lambda a, b: np.stack([a, b], 1),
                UNIT, uniform(2, 6),
            ),
            "split": Case(
                lambda x: relay.split(x, 3, axis=1), lambda x: np.split(x, 3, 1), X
            ),
            "split_at": Case(
                lambda x: relay.split(x, (1, 4), axis=1), lambda x: np.split(x, (1, 4), 1), X
            ),
            "split_one": Case(lambda x: relay.split(x, 1), lambda x: [x], X),
            "concatenate_split": Case(
                lambda x: relay.concatenate(relay.split(x, 2, axis=1), axis=0),
                lambda x: np.concatenate(np.split(x, 2, 1), 0),
                X,
            ),
            "broadcast_to": Case(
                lambda x: relay.broadcast_to(x, (3, 2, 6)),
                lambda x: np.broadcast_to(x, (3, 2, 6)),
                UNIT,
            ),
            "broadcast_to_like": Case(
                relay.broadcast_to_like, lambda x, y: np.broadcast_to(x, y.shape), uniform(6), UNIT
            ),
            "collapse_sum_like": Case(
                relay.collapse_sum_like, lambda x, y: x.sum(0), UNIT, uniform(6)
            ),
            "collapse_sum_to": Case(
                lambda x: relay.collapse_sum_to(x, (2, 1)), lambda x: x.sum(1, keepdims=True), UNIT
            ),
            "repeat": Case(
                lambda x: relay.repeat(x, 2, axis=1), lambda x: np.repeat(x, 2, 1), UNIT
            ),
            "tile": Case(lambda x: relay.tile(x, (2, 1, 3)), lambda x: np.tile(x, (2, 1, 3)), UNIT),
            "batch_flatten": Case(relay.nn.batch_flatten, lambda x: x.reshape(2, -1), X),
            "meshgrid": Case(
                lambda a, b: relay.meshgrid([a, b]),
                lambda a, b: np.meshgrid(a, b, indexing="ij"),
                uniform(3), uniform(4),
            ),
        }
    )  # fmt: skip


class TestReshape:
    @pytest.mark.parametrize(
        ("shape", "new", "want"),
        [
            ((2, 3, 4), (0, -1), (2, 12)),
            ((2, 3, 4), (-2,), (2, 3, 4)),
            ((2, 3, 4), (-3, 0), (6, 4)),
            ((2, 3, 4), (0, 0, -4, 2, -1), (2, 3, 2, 2)),
            ((2, 3, 4), (-4, 1, 2, -2), (1, 2, 3, 4)),
            ((2, 3, 4), (4, 0, 2), (4, 3, 2)),
            ((2, Any(), 4), (0, 0, -1), (2, Any(), Any())),
            ((), (1, 1), (1, 1)),
            ((0, 3), (0, -1), None),
        ],
    )
    def test_values(self, shape: tuple, new: tuple, want: tuple | None) -> None:
        if want is None:
            with pytest.raises(ValueError, match="divide"):
                reshaped(shape, new, False)
        else:
            assert reshaped(shape, new, False) == want

    @pytest.mark.parametrize(
        "new", [(-1, -1), (-5,), (-4, 5), (-4, -1, -1), (0, 0, 0, 0), (-3, -3)]
    )
    def test_refused(self, new: tuple) -> None:
        with pytest.raises(ValueError, match=r".+"):
            reshaped((2, 3, 4), new, False)
