"""Squeeze-and-excitation blocks, as networks have them and others."""

from __future__ import annotations

import random
from collections.abc import Iterator

from convoy.backends.kernels.sm90.squeeze_excite import CHOSEN, objections
from convoy.ir.activation import ACTIVATIONS, WITH_ALPHA
from convoy.ir.epilogue import Epilogue
from convoy.ir.squeeze_excite import SqueezeExcite
from convoy.ir.workload import Workload

#: As networks have them: images, height and width, channels and squeezed ones, the activation of
#: the first product and that of the gates, and whether a residual and ReLU follow.
USUAL = (
    (1, 28, 240, 10, "silu", "sigmoid", False),
    (2, 14, 72, 24, "relu", "clip", False),
    (3, 7, 256, 16, "relu", "sigmoid", True),
    (8, 9, 64, 8, "hardswish", "clip", False),
)


def made(
    n: int, size: int | tuple[int, int], c: int, squeezed: int, squeeze: str = "relu",
    gate: str = "sigmoid", y: str = "none", residual: bool = False,
    biases: tuple[bool, bool] = (True, True), dtype: str = "float16",
) -> Workload:  # fmt: skip
    """A block of an image of these sizes with these activations."""
    h, w = (size, size) if isinstance(size, int) else size
    own = SqueezeExcite(
        squeezed, activated(squeeze, bias=biases[0]), activated(gate, bias=biases[1])
    )
    return Workload(
        "squeeze_excite", n, h, w, c, c, 1, 1, dtype=dtype, out_dtype=dtype,
        epilogue=activated(y, residual), squeeze_excite=own,
    )  # fmt: skip


def activated(activation: str, residual: bool = False, bias: bool = False) -> Epilogue:
    """An epilogue of this activation."""
    alpha = 0.1 if activation in WITH_ALPHA else 0.0
    low, high = (-0.25, 0.75) if activation == "clip" else (0.0, 0.0)
    return Epilogue(residual, bias, activation, low, high, alpha=alpha)


def usual(dtype: str = "float16") -> Iterator[Workload]:
    """Those of networks, with biases."""
    for n, size, c, squeezed, squeeze, gate, added in USUAL:
        y = "relu" if added else "none"
        yield made(n, size, c, squeezed, squeeze, gate, y, added, dtype=dtype)


def cases(count: int, seed: int) -> Iterator[Workload]:
    """Random ones: any channels and activations."""
    rng = random.Random(seed)
    for _ in range(count):
        dtype, size = rng.choice(("float16", "bfloat16")), (rng.randint(1, 12), rng.randint(1, 9))
        squeeze, gate, y = (rng.choice(ACTIVATIONS) for _ in range(3))
        biases = rng.random() < 0.6, rng.random() < 0.6
        yield made(
            rng.randint(1, 4), size, rng.choice((1, 3, 8, 24)), rng.choice((1, 2, 7)), squeeze,
            gate, y, rng.random() < 0.5, biases, dtype,
        )  # fmt: skip


def taken_cases(count: int, seed: int) -> Iterator[Workload]:
    """Random ones that the kernel takes."""
    rng = random.Random(seed)
    found = 0
    while found < count:
        dtype, most = rng.choice(("float16", "bfloat16")), rng.choice((4, 16, 40))
        squeeze, gate, y = (rng.choice(chosen) for chosen in CHOSEN)
        biases = rng.random() < 0.7, rng.random() < 0.7
        w = made(
            rng.choice((1, 2, 3, 5, 9, 20)), (rng.randint(1, most), rng.randint(1, most)),
            8 * rng.choice((1, 2, 3, 5, 9, 12, 18, 33, 60, 84, 144)),
            rng.choice((1, 3, 4, 6, 8, 20, 48, 64, 200)), squeeze, gate, y, rng.random() < 0.5,
            biases, dtype,
        )  # fmt: skip
        if not any(objections(w)):
            yield w
            found += 1
