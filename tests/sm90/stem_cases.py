"""Stems of odd sizes for the kernel's tests."""

from __future__ import annotations

import random
from collections.abc import Iterator

from convoy.errors import InvalidWorkload
from convoy.ir.activation import ACTIVATIONS, WITH_ALPHA
from convoy.ir.epilogue import Epilogue
from convoy.ir.stem import Stem
from convoy.ir.workload import Workload

#: As networks have them: images, height, width, K, filter, stride, padding and pool.
USUAL = (
    (1, 224, 224, 64, 7, 2, 3, (3, 2, 1)),
    (3, 128, 96, 64, 7, 2, 3, (3, 2, 1)),
    (2, 224, 224, 32, 3, 2, 1, None),
    (2, 75, 75, 32, 3, 2, 0, None),
    (1, 64, 64, 96, 4, 4, 0, None),
    (2, 224, 224, 64, 3, 2, 0, (3, 2, 0)),
    (1, 224, 224, 64, 11, 4, 2, (3, 2, 0)),
    (1, 60, 44, 64, 3, 1, 1, (2, 2, 0)),
)


def usual(dtype: str = "float16") -> Iterator[Workload]:
    """Stems of networks, with a relu."""
    for n, h, w, k, size, stride, pad, pool in USUAL:
        window, step, before = pool or (0, 1, 0)
        yield Workload(
            "stem", n, h, w, 4, k, size, size, (stride, stride), (pad,) * 4, dtype=dtype,
            out_dtype=dtype, epilogue=Epilogue(bias=True, activation="relu"),
            stem=Stem(3, False, "float32", (window,) * 2, (step,) * 2, (before,) * 4),
        )  # fmt: skip


def cases(count: int, seed: int) -> Iterator[Workload]:
    """Random stems: uneven filters, strides, dilations, paddings and windows."""
    rng = random.Random(seed)
    found = 0
    while found < count:
        dtype = rng.choice(("float16", "bfloat16"))
        activation = rng.choice(ACTIVATIONS)
        alpha = 0.1 if activation in WITH_ALPHA else 0.0
        low, high = (-0.5, 0.5) if activation == "clip" else (0.0, 0.0)
        pools = rng.random() < 0.6
        window = (rng.randint(1, 5), rng.randint(1, 5)) if pools else (0, 0)
        step = (rng.randint(1, 3), rng.randint(1, 3)) if pools else (1, 1)
        around = tuple(rng.randint(0, max(0, size // 2)) for size in (*window, *window))
        try:
            yield Workload(
                "stem", rng.randint(1, 3), rng.randint(1, 70), rng.randint(1, 90), 4,
                rng.choice((8, 16, 24, 32, 40, 64, 72, 96, 136)), rng.randint(1, 7),
                rng.randint(1, 9), (rng.randint(1, 4), rng.randint(1, 3)),
                tuple(rng.randint(0, 4) for _ in range(4)), (rng.randint(1, 3), rng.randint(1, 2)),
                dtype=dtype, out_dtype=dtype,
                epilogue=Epilogue(
                    bias=rng.random() < 0.7, activation=activation, clip_min=low, clip_max=high,
                    alpha=alpha,
                ),
                stem=Stem(
                    rng.randint(1, 4), rng.random() < 0.4, rng.choice(("float32", dtype)), window,
                    step, around,
                ),
            )  # fmt: skip
        except InvalidWorkload:
            continue
        found += 1
