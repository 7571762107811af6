"""1x1 convolutions with depthwise ones behind them, as networks have them and others."""

from __future__ import annotations

import random
from collections.abc import Iterator

from convoy.backends.kernels.sm90.expand_depthwise import CHOSEN, FILTERS
from convoy.errors import InvalidWorkload
from convoy.ir.activation import ACTIVATIONS, WITH_ALPHA
from convoy.ir.epilogue import Epilogue
from convoy.ir.expansion import Expansion
from convoy.ir.workload import Workload

#: As networks have them: images, height and width, channels, K, filter, stride and activation.
USUAL = (
    (1, 56, 16, 96, 3, 2, "clip"),
    (2, 28, 24, 144, 5, 1, "silu"),
    (1, 14, 80, 200, 3, 1, "hardswish"),
    (2, 7, 160, 960, 3, 1, "relu"),
)


def usual(dtype: str = "float16") -> Iterator[Workload]:
    """Those of MobileNets and EfficientNets, with a bias in both."""
    for n, size, channels, k, taps, stride, activation in USUAL:
        high = 6.0 if activation == "clip" else 0.0
        epilogue = Epilogue(bias=True, activation=activation, clip_max=high)
        yield Workload(
            "expand_depthwise", n, size, size, k, k, taps, taps, (stride,) * 2, (taps // 2,) * 4,
            groups=k, dtype=dtype, out_dtype=dtype, epilogue=epilogue,
            expansion=Expansion(channels, epilogue),
        )  # fmt: skip


def cases(count: int, seed: int) -> Iterator[Workload]:
    """Random ones: uneven filters, strides, dilations and paddings, any activations."""
    rng = random.Random(seed)
    found = 0
    while found < count:
        dtype = rng.choice(("float16", "bfloat16"))
        k = rng.choice((8, 16, 24, 40, 72, 136))
        try:
            yield Workload(
                "expand_depthwise", rng.randint(1, 3), rng.randint(1, 20), rng.randint(1, 30), k, k,
                rng.randint(1, 5), rng.randint(1, 7), (rng.randint(1, 3), rng.randint(1, 2)),
                tuple(rng.randint(0, 3) for _ in range(4)), (rng.randint(1, 2), rng.randint(1, 2)),
                groups=k, dtype=dtype, out_dtype=dtype, epilogue=_epilogue(rng),
                expansion=Expansion(rng.choice((8, 16, 24, 56, 80)), _epilogue(rng)),
            )  # fmt: skip
        except InvalidWorkload:
            continue
        found += 1


def taken_cases(count: int, seed: int) -> Iterator[Workload]:
    """Random ones that the kernel takes: any sides, paddings below the filter's size, channels that
    fill blocks of it and such that do not, those activations that a launch chooses from."""
    rng = random.Random(seed)
    found = 0
    while found < count:
        dtype, side = rng.choice(("float16", "bfloat16")), rng.choice((6, 20, 40, 90))
        taps, stride = rng.choice(FILTERS), rng.randint(1, 2)
        k = rng.choice((8, 16, 24, 40, 48, 64, 72, 96, 136, 200))
        narrow = rng.choice((8, 16, 24, 56, 64, 80, 136, 320, 832))
        try:
            yield Workload(
                "expand_depthwise", rng.randint(1, 6), rng.randint(1, side), rng.randint(1, side),
                k, k, taps, taps, (stride, stride), tuple(rng.randrange(taps) for _ in range(4)),
                groups=k, dtype=dtype, out_dtype=dtype, epilogue=_epilogue(rng, CHOSEN),
                expansion=Expansion(narrow, _epilogue(rng, CHOSEN)),
            )  # fmt: skip
        except InvalidWorkload:
            continue
        found += 1


def _epilogue(rng: random.Random, activations: tuple[str, ...] = ACTIVATIONS) -> Epilogue:
    activation = rng.choice(activations)
    alpha = 0.1 if activation in WITH_ALPHA else 0.0
    low, high = (-0.5, 0.5) if activation == "clip" else (0.0, 0.0)
    bias = rng.random() < 0.7
    return Epilogue(bias=bias, activation=activation, clip_min=low, clip_max=high, alpha=alpha)
