"""Random numbers: Threefry with Python's integers, and the moments of distributions."""

from __future__ import annotations

import numpy as np
import pytest

from convoy import relay
from convoy.errors import RelayTypeError

from .test_sparse import evaluate

MASK = 2**64 - 1
TURNS = [(14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32)]


def threefry(key: list[int], words: list[int]) -> list[int]:
    keys = [*key, 0x1BD11BDAA9FC1A22]
    for word in key:
        keys[4] ^= word
    x = list(words)
    for turn in range(20):
        if turn % 4 == 0:
            x = [(v + keys[(turn // 4 + j) % 5]) & MASK for j, v in enumerate(x)]
            x[3] = (x[3] + turn // 4) & MASK
        for pair in (0, 2):
            r = TURNS[turn % 8][pair // 2]
            total = (x[pair] + x[pair + 1]) & MASK
            turned = ((x[pair + 1] << r) | (x[pair + 1] >> (64 - r))) & MASK
            x[pair : pair + 2] = [total, total ^ turned]
        x = [x[0], x[3], x[2], x[1]]
    return x


KEY = relay.random.threefry_key(2**200 + 17).value


def generated(key: np.ndarray, *shape: int) -> list[np.ndarray]:
    return evaluate(lambda k: relay.TupleWrapper(relay.random.threefry_generate(k, shape), 2), key)


def test_words() -> None:
    state, words = evaluate(
        lambda k: relay.TupleWrapper(relay.random.threefry_generate(k, (2, 5)), 2), KEY
    )
    key, counter = [int(v) for v in KEY[:4]], [int(v) for v in KEY[4:8]]
    want: list[int] = []
    for block in range(2):
        want += threefry(key, [(c + block) & MASK for c in counter])
    want += threefry(key, [*counter[:3], counter[3] + 8])[:2]
    assert words.reshape(-1).tolist() == want
    assert state.tolist() == [*KEY[:7].tolist(), int(KEY[7]) + 12, *KEY[8:].tolist()]


def test_a_full_counter_and_a_full_path() -> None:
    full = KEY.copy()
    full[7], full[9] = MASK - 3, 1 << 5
    state, _ = evaluate(
        lambda k: relay.TupleWrapper(relay.random.threefry_generate(k, (4,)), 2), full
    )
    assert state[4:].tolist() == [int(KEY[8]), 1 << 5, 0, 4, 1 << 62, 0]
    end = KEY.copy()
    end[8:] = 0
    left, right = evaluate(lambda k: relay.TupleWrapper(relay.random.threefry_split(k), 2), end)
    new = threefry([int(v) for v in end[:4]], [int(v) for v in end[4:8]])
    assert left.tolist() == [*new, 0, 0, 0, 0, 1 << 62, 0]
    assert right.tolist() == [*new, 1 << 63, 0, 0, 0, 1 << 62, 0]


def test_distributions() -> None:
    def build(key: relay.Expr) -> relay.Expr:
        probabilities = relay.const(np.array([[1, 3, -2], [0, 0, 5]], "float32"))
        calls = [
            relay.random.uniform(key, (4000,), low=2.0, high=5.0),
            relay.random.uniform(key, (4000,), "float64"),
            relay.random.normal(key, (2, 2000), mean=1.0, scale=3.0),
            relay.random.multinomial(key, probabilities, 1000),
        ]
        return relay.Tuple([relay.TupleGetItem(call, 1) for call in calls])

    uniform, wide, normal, drawn = evaluate(build, KEY)
    assert uniform.min() >= 2 and uniform.max() < 5
    assert abs(uniform.mean() - 3.5) < 0.05
    assert wide.dtype == "float64" and wide.min() >= 0 and wide.max() < 1
    assert abs(normal.mean() - 1) < 0.2 and abs(normal.std() - 3) < 0.2
    assert drawn.dtype == "int64" and set(drawn[0]) == {0, 1} and set(drawn[1]) == {2}
    assert abs(drawn[0].mean() - 0.75) < 0.05


def test_a_state_of_another_size() -> None:
    call = relay.random.threefry_split(relay.const(np.zeros(9, "uint64")))
    with pytest.raises(RelayTypeError, match=r"expected Tensor\[\(10\), uint64\]"):
        relay.transform.InferType()(relay.IRModule.from_expr(call))
