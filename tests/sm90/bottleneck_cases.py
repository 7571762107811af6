"""Convolutions with 1x1 ones behind them, as residual networks have them and others."""

from __future__ import annotations

import random
from collections.abc import Iterator

from convoy.backends.kernels.sm90.bottleneck import CHOSEN, objections
from convoy.errors import InvalidWorkload
from convoy.ir.activation import ACTIVATIONS, WITH_ALPHA
from convoy.ir.bottleneck import Bottleneck
from convoy.ir.epilogue import NO_EPILOGUE, Epilogue
from convoy.ir.workload import Workload

#: As networks have them: images, height and width, C = K, results of the second and of the third
#: convolution, and whether the second one adds a residual.
USUAL = (
    (1, 56, 64, 256, 64, True),
    (2, 28, 64, 256, 0, False),
    (3, 20, 32, 128, 128, True),
    (2, 30, 32, 128, 32, False),
)
_RELU = Epilogue(bias=True, activation="relu")


def usual(dtype: str = "float16") -> Iterator[Workload]:
    """Those of residual networks, with a bias and ReLU in all convolutions."""
    for n, size, narrow, expand, reduce, residual in USUAL:
        wide = Epilogue(residual=residual, bias=True, activation="relu")
        yield Workload(
            "bottleneck", n, size, size, narrow, narrow, 3, 3, padding=(1,) * 4, dtype=dtype,
            out_dtype=dtype, epilogue=_RELU,
            bottleneck=Bottleneck(expand, wide, reduce, _RELU if reduce else NO_EPILOGUE),
        )  # fmt: skip


def cases(count: int, seed: int) -> Iterator[Workload]:
    """Random ones: uneven filters, dilations and paddings, any channels and activations."""
    rng = random.Random(seed)
    found = 0
    while found < count:
        dtype = rng.choice(("float16", "bfloat16"))
        try:
            yield Workload(
                "bottleneck", rng.randint(1, 3), rng.randint(1, 14), rng.randint(1, 18),
                rng.choice((1, 3, 8, 24)), rng.choice((2, 8, 20)), rng.randint(1, 5),
                rng.randint(1, 4), padding=tuple(rng.randint(0, 3) for _ in range(4)),
                dilation=(rng.randint(1, 2), rng.randint(1, 3)), dtype=dtype, out_dtype=dtype,
                epilogue=_epilogue(rng),
                bottleneck=_bottleneck(rng, rng.choice((4, 16, 40)), rng.choice((0, 0, 5, 24))),
            )  # fmt: skip
        except InvalidWorkload:
            continue
        found += 1


#: Filters of those that the kernel takes.
_FILTERS = ((3, 3), (3, 3), (1, 3), (3, 1), (5, 5), (2, 2), (1, 1))


def taken_cases(count: int, seed: int) -> Iterator[Workload]:
    """Random ones that the kernel takes: any sides and paddings, channels that fill blocks of 64
    and others, those activations that a launch chooses from."""
    rng = random.Random(seed)
    found = 0
    while found < count:
        dtype, side = rng.choice(("float16", "bfloat16")), rng.choice((6, 20, 40, 70))
        taps, step = rng.choice(_FILTERS), rng.choice((1, 1, 1, 2))
        narrow = (8, 16, 24, 32, 40, 48, 64, 72, 128)
        try:
            w = Workload(
                "bottleneck", rng.randint(1, 6), rng.randint(1, side), rng.randint(1, side),
                rng.choice(narrow), rng.choice(narrow), *taps,
                padding=tuple(rng.randrange(3) for _ in range(4)), dilation=(step, step),
                dtype=dtype, out_dtype=dtype, epilogue=_epilogue(rng, CHOSEN),
                bottleneck=_bottleneck(
                    rng, rng.choice((8, 64, 72, 200, 256)), rng.choice((0, 24, 64, 128)), CHOSEN
                ),
            )  # fmt: skip
        except InvalidWorkload:
            continue
        if not any(objections(w)):
            yield w
            found += 1


def _bottleneck(
    rng: random.Random, expand: int, reduce: int, activations: tuple[str, ...] = ACTIVATIONS
) -> Bottleneck:
    second = _epilogue(rng, activations, rng.random() < 0.6)
    third = _epilogue(rng, activations) if reduce else NO_EPILOGUE
    return Bottleneck(expand, second, reduce, third)


def _epilogue(
    rng: random.Random, activations: tuple[str, ...] = ACTIVATIONS, residual: bool = False
) -> Epilogue:
    activation = rng.choice(activations)
    alpha = 0.1 if activation in WITH_ALPHA else 0.0
    low, high = (-0.5, 0.5) if activation == "clip" else (0.0, 0.0)
    return Epilogue(residual, rng.random() < 0.7, activation, low, high, alpha=alpha)
