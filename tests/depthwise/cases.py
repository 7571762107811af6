"""Random workloads of a useful size, always the same for a seed: for a GPU."""

from __future__ import annotations

import random

from convoy.backends.kernels.depthwise.space import ACTIVATIONS
from convoy.errors import InvalidWorkload
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload


def cases(count: int, seed: int, dtypes: tuple[str, ...]) -> list[Workload]:
    """Depthwise workloads of every direction."""
    rng, found = random.Random(seed), []
    while len(found) < count:
        op = rng.choice(["fprop", "fprop", "dgrad", "wgrad"])
        square = rng.choice([3, 5, 7, None])
        r, s = (square or rng.choice([1, 2, 4, 9, 31]) for _ in range(2))
        c = rng.choice([3, 7, 8, 12, 32, 50, 96, 130, 144, 320])
        epilogue = Epilogue()
        if op == "fprop":
            activation = rng.choice(ACTIVATIONS)
            fused = [rng.random() < 0.5 for _ in range(2)]
            epilogue = Epilogue(*fused, activation=activation, clip_min=-0.5, clip_max=0.75)
        dtype = rng.choice(dtypes)
        try:
            workload = Workload(
                op,
                *(rng.choice([1, 2, 5]), rng.randint(3, 60), rng.randint(3, 60), c),
                k=c * (1 if op == "dgrad" else rng.choice([1, 1, 1, 2, 3])),
                r=r,
                s=s,
                stride=rng.choice([(1, 1), (1, 1), (2, 2), (1, 2), (3, 2)]),
                padding=tuple(rng.randint(0, max(r, s)) for _ in range(4)),
                dilation=rng.choice([(1, 1), (1, 1), (2, 2), (1, 3)]),
                groups=c,
                dtype=dtype,
                out_dtype=dtype,
                epilogue=epilogue,
            )
        except InvalidWorkload:
            continue
        found.append(workload)
    return found


def grouped_cases(count: int, seed: int, dtypes: tuple[str, ...]) -> list[Workload]:
    """Forward convolutions of a few channels a group."""
    rng, found = random.Random(seed), []
    while len(found) < count:
        groups, dtype = rng.choice([2, 3, 9, 32]), rng.choice(dtypes)
        r, s = rng.choice([(3, 3), (3, 3), (1, 1), (5, 5), (1, 7)])
        try:
            workload = Workload(
                "fprop",
                *(rng.choice([1, 2, 5]), rng.randint(3, 40), rng.randint(3, 40)),
                c=groups * rng.choice([4, 8, 12, 16, 24, 32, 64]),
                k=groups * rng.choice([2, 4, 8, 16, 24, 40, 64]),
                r=r,
                s=s,
                stride=rng.choice([(1, 1), (2, 2), (1, 2)]),
                padding=tuple(rng.randint(0, max(r, s)) for _ in range(4)),
                dilation=rng.choice([(1, 1), (1, 1), (2, 2)]),
                groups=groups,
                dtype=dtype,
                out_dtype=dtype,
                epilogue=Epilogue(rng.random() < 0.5, rng.random() < 0.5, rng.choice(ACTIVATIONS)),
            )
        except InvalidWorkload:
            continue
        found.append(workload)
    return found
