"""Boxes and anchors against plain loops in numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from convoy import relay

from .test_sparse import evaluate

RNG = np.random.default_rng(5)


def boxes(*shape: int) -> np.ndarray:
    corner = RNG.uniform(0, 8, (*shape, 2))
    return np.concatenate([corner, corner + RNG.uniform(1, 5, (*shape, 2))], -1).astype("float32")


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    inner = np.prod(np.maximum(high - low, 0))
    return float(inner / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - inner))


def kept(corners: np.ndarray, scores: np.ndarray, limit: float, least: float) -> list[int]:
    """Positions that are not suppressed, by descending score."""
    found: list[int] = []
    for place in np.argsort(-scores, kind="stable"):
        if scores[place] > least and all(
            overlap(corners[place], corners[f]) < limit for f in found
        ):
            found.append(int(place))
    return found


def test_valid_counts() -> None:
    data = RNG.uniform(0, 1, (2, 7, 6)).astype("float32")
    data[:, ::3, 0] = -1
    count, rows, places = evaluate(lambda x: relay.vision.get_valid_counts(x, 0.4), data)
    for batch in range(2):
        want = np.flatnonzero((data[batch, :, 1] > 0.4) & (data[batch, :, 0] >= 0))
        assert count[batch] == len(want)
        np.testing.assert_array_equal(places[batch], [*want, *[-1] * (7 - len(want))])
        np.testing.assert_array_equal(rows[batch, : len(want)], data[batch, want])
        assert (rows[batch, len(want) :] == -1).all()


def test_no_boxes() -> None:
    """A number of boxes that a run finds to be zero."""
    data = relay.var("data", shape=(2, relay.Any(), 6))
    counts, rows, places = relay.vision.get_valid_counts(data, 0.4)
    kept_places, number = relay.vision.non_max_suppression(rows, counts, places)
    outputs = relay.Tuple([counts, rows, kept_places, number])
    mod = relay.IRModule.from_expr(relay.Function([data], outputs))
    found = relay.create_executor("vm", mod).evaluate()(np.zeros((2, 0, 6), "float32"))
    assert [f.numpy().shape for f in found] == [(2,), (2, 0, 6), (2, 0), (2, 1)]
    assert not found[0].numpy().any() and not found[3].numpy().any()


@pytest.mark.parametrize("form", ["onnx", "tensorflow"])
def test_suppression_in_each_class(form: str) -> None:
    corners, scores = boxes(2, 9), RNG.uniform(0, 1, (2, 3, 9)).astype("float32")
    results = evaluate(
        lambda b, s: relay.vision.all_class_non_max_suppression(b, s, 4, 0.3, 0.2, form),
        corners, scores,
    )  # fmt: skip
    want = [
        (b, c, place)
        for b in range(2)
        for c in range(3)
        for place in kept(corners[b], scores[b, c], 0.3, 0.2)[:4]
    ]
    if form == "onnx":
        found, number = results
        assert number == [len(want)]
        assert found.shape == (54, 3)
        assert sorted(map(tuple, found[: len(want)].tolist())) == sorted(want)
        return
    pairs, values, numbers = results
    for b in range(2):
        mine = [(c, p) for batch, c, p in want if batch == b]
        assert numbers[b] == len(mine)
        assert sorted(map(tuple, pairs[b, : len(mine)].tolist())) == sorted(mine)
        for (c, p), value in zip(pairs[b, : len(mine)].tolist(), values[b], strict=False):
            assert value == scores[b, c, p]
        assert not pairs[b, len(mine) :].any() and not values[b, len(mine) :].any()


def test_prior_boxes() -> None:
    data = np.zeros((1, 3, 2, 3), "float32")
    sizes, ratios = (0.4, 0.2), (1, 2)
    (got,) = evaluate(
        lambda x: relay.vision.multibox_prior(x, sizes, ratios, offsets=(0.5, 0.25), clip=True),
        data,
    )
    want = []
    for y in range(2):
        for x in range(3):
            for size, ratio in ((0.4, 1), (0.2, 1), (0.4, 2)):
                half_w = size * 2 / 3 * math.sqrt(ratio) / 2
                half_h = size / math.sqrt(ratio) / 2
                cx, cy = (x + 0.25) / 3, (y + 0.5) / 2
                want.append((cx - half_w, cy - half_h, cx + half_w, cy + half_h))
    np.testing.assert_allclose(got, np.clip([want], 0, 1), 1e-5, 1e-6)


@pytest.mark.parametrize("background", [True, False])
def test_decoded_boxes(background: bool) -> None:
    probabilities = RNG.dirichlet(np.ones(3), (2, 5)).transpose(0, 2, 1).astype("float32")
    offsets, anchors = RNG.uniform(-1, 1, (2, 20)).astype("float32"), boxes(1, 5) / 16
    rows, count = evaluate(
        lambda p, o, a: relay.vision.multibox_transform_loc(
            p, o, a, threshold=0.3, keep_background=background
        ),
        probabilities, offsets, anchors,
    )  # fmt: skip
    for batch in range(2):
        want = []
        for i in range(5):
            scores = probabilities[batch, 0 if background else 1 :, i]
            kind = int(scores.argmax())
            if scores[kind] < 0.3:
                if not background:
                    continue
                kind = 0
            x1, y1, x2, y2 = anchors[0, i]
            dx, dy, dw, dh = offsets[batch, 4 * i : 4 * i + 4] * (0.1, 0.1, 0.2, 0.2)
            w, h = x2 - x1, y2 - y1
            cx, cy = dx * w + (x1 + x2) / 2, dy * h + (y1 + y2) / 2
            w, h = math.exp(dw) * w / 2, math.exp(dh) * h / 2
            box = np.clip((cx - w, cy - h, cx + w, cy + h), 0, 1)
            want.append((kind, scores.max(), *box))
        assert count[batch] == len(want)
        np.testing.assert_allclose(rows[batch, : len(want)], want, 1e-5, 1e-6)
        assert (rows[batch, len(want) :] == -1).all()


@pytest.mark.parametrize("iou_loss", [False, True])
def test_proposals(iou_loss: bool) -> None:
    scores = RNG.uniform(0, 1, (1, 4, 3, 3)).astype("float32")
    offsets = RNG.uniform(-0.5, 0.5, (1, 8, 3, 3)).astype("float32")
    info = np.array([[44, 48, 1]], "float32")
    (got,) = evaluate(
        lambda s, o, i: relay.vision.proposal(
            s, o, i, [1.0, 2.0], [1.0], 16, 0.5, 12, 5, 8, iou_loss
        ),
        scores, offsets, info,
    )  # fmt: skip
    found, ranks = [], []
    for y in range(3):
        for x in range(3):
            for k, scale in enumerate((1, 2)):
                extent, center = 16 * scale, 7.5
                shift = np.array([x, y, x, y]) * 16
                half = 0.5 * (extent - 1)
                x1, y1, x2, y2 = np.array([center - half] * 2 + [center + half] * 2) + shift
                d = offsets[0, 4 * k : 4 * k + 4, y, x]
                if iou_loss:
                    box = np.array([x1, y1, x2, y2]) + d
                else:
                    cx, cy = d[0] * extent + (x1 + x2) / 2, d[1] * extent + (y1 + y2) / 2
                    w, h = (math.exp(v) * extent - 1 for v in d[2:])
                    box = np.array([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2])
                box = np.clip(box, 0, [47, 43, 47, 43])
                small = min(box[2] - box[0], box[3] - box[1]) + 1 < 8
                found.append(box + np.array([-4, -4, 4, 4]) * small)
                outside = y >= int(44 / 16) or x >= int(48 / 16)
                ranks.append(-1 if small or outside else scores[0, 2 + k, y, x])
    order = np.argsort(-np.array(ranks), kind="stable")[:12]
    upper = np.array(found)[order] + np.array([0, 0, 1, 1])
    places = kept(upper, np.arange(12, 0, -1.0), 0.5, 0)
    want = [found[order[places[i % len(places)]]] for i in range(5)]
    np.testing.assert_allclose(got[:, 1:], want, 1e-4, 1e-4)
    assert (got[:, 0] == 0).all()
